"""Columns convert as single cells do, and single cells as people expect."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.files.cells import cell, to_cells
from cli.files.times import parse_ms, to_times

KINDS = ["float", "int", "bool", "category", "any", "label"]
TEXTS = st.one_of(
    st.sampled_from(
        ["", "NA", "NaN", "nan", "null", "true", "No", "YES", "0", "1", "1.0", "+5", "007", "0x10"]
    ),
    st.sampled_from(
        [" 3 ", "1_0", "1e5", "1e999", "inf", "-inf", "Infinity", ".5", "5.", "9" * 22, "1d", "٣"]
    ),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.text(max_size=6),
)


def same(a: list[Any], b: list[Any]) -> bool:
    return [(type(x), x) for x in a] == [(type(x), x) for x in b]


@settings(deadline=None)
@given(st.lists(st.none() | TEXTS, max_size=12), st.sampled_from(KINDS))
def test_a_column_of_texts_equals_its_cells(texts: list[str | None], kind: Any) -> None:
    expected = [cell(t, kind) for t in texts]
    for type_ in (pa.string(), pa.large_string()):
        assert same(to_cells(pa.array(texts, type_), kind), expected)
    assert same(to_cells(pa.array(texts, pa.string()).dictionary_encode(), kind), expected)
    assert same(to_cells(list(texts), kind), expected)


@settings(deadline=None)
@given(
    st.lists(st.none() | st.floats() | st.integers(-50, 50).map(float), max_size=12), st.sampled_from(KINDS)
)
def test_a_column_of_floats_equals_its_cells(values: list[float | None], kind: Any) -> None:
    expected = [cell(v, kind) for v in values]
    assert same(to_cells(pa.array(values, pa.float64()), kind), expected)
    assert not any(isinstance(v, float) and not math.isfinite(v) for v in expected)


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=12), st.sampled_from(KINDS))
def test_a_column_of_integers_equals_its_cells(values: list[int | None], kind: Any) -> None:
    assert same(to_cells(pa.array(values, pa.int64()), kind), [cell(v, kind) for v in values])


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(0, 2**64 - 1), max_size=8), st.sampled_from(KINDS))
def test_a_column_of_unsigned_integers_equals_its_cells(values: list[int | None], kind: Any) -> None:
    assert same(to_cells(pa.array(values, pa.uint64()), kind), [cell(v, kind) for v in values])


@settings(deadline=None)
@given(st.lists(st.none() | st.booleans(), max_size=8), st.sampled_from(KINDS))
def test_a_column_of_truth_values_equals_its_cells(values: list[bool | None], kind: Any) -> None:
    assert same(to_cells(pa.array(values, pa.bool_()), kind), [cell(v, kind) for v in values])


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("1.50", "float", 1.5),
        (" 7 ", "float", 7.0),
        (3, "float", 3.0),
        ("NA", "float", None),
        ("", "int", None),
        ("abc", "float", "abc"),
        ("1e999", "float", "1e999"),
        ("inf", "float", "inf"),
        (math.inf, "float", "inf"),
        (math.nan, "float", None),
        ("42", "int", 42),
        ("42.0", "int", 42),
        ("42.5", "int", "42.5"),
        (42.5, "int", 42.5),
        (42.0, "int", 42),
        ("9223372036854775808", "int", "9223372036854775808"),
        ("TRUE", "bool", True),
        ("no", "bool", False),
        ("1", "bool", True),
        ("0.0", "bool", False),
        (1, "bool", True),
        ("2", "bool", "2"),
        ("maybe", "bool", "maybe"),
        (" 7 ", "category", " 7 "),
        ("007", "category", "007"),
        (7, "category", "7"),
        (True, "category", "true"),
        ("NA", "category", None),
        ("null", "category", "null"),
        (dt.date(2024, 2, 29), "category", "2024-02-29"),
        (dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), "any", "2024-02-29T12:00:00Z"),
        ("12", "any", 12),
        ("1.5", "any", 1.5),
        ("true", "any", True),
        ("yes", "any", "yes"),
        ("01", "label", "01"),
        (1.0, "label", 1),
        (1, "label", 1),
        ([1], "any", [1]),
    ],
)
def test_cells(value: Any, kind: Any, expected: Any) -> None:
    assert same([cell(value, kind)], [expected])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-01 00:00:00.123456", 123),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:01", 60_000),
        ("1385000000000", 1_385_000_000_000),
        ("1385000000000.0", 1_385_000_000_000),
        (1_385_000_000_000, 1_385_000_000_000),
        (1.385e12, 1_385_000_000_000),
        (dt.date(1970, 1, 2), 86_400_000),
        (dt.datetime(1970, 1, 1, 0, 0, 1), 1_000),
        ("1969-12-31T23:59:59.9995Z", -1),
        ("", None),
        ("NA", None),
        (None, None),
        (math.nan, None),
    ],
)
def test_times(value: Any, expected: int | None) -> None:
    assert parse_ms(value) == expected
    times = to_times([value])
    assert bool(times.known[0]) == (expected is not None)
    assert expected is None or times.ms[0] == expected


@pytest.mark.parametrize("value", ["soon", "2013-13-01", "0.5", 0.5, True, math.inf, 10**17, "2013-01", [1]])
def test_what_is_no_time(value: Any) -> None:
    with pytest.raises((ValueError, OverflowError)):
        parse_ms(value)
    assert 0 in to_times([value]).raw


STAMPS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))


@settings(deadline=None)
@given(
    st.lists(st.none() | STAMPS, max_size=10),
    st.sampled_from(["s", "ms", "us"]),
    st.sampled_from(["UTC", None]),
)
def test_a_column_of_timestamps_equals_its_cells(values: list[Any], unit: str, zone: str | None) -> None:
    column = pa.array(values, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
    if zone:
        column = column.cast(pa.timestamp(unit, zone))
    times = to_times(column)
    expected = [parse_ms(v) for v in column.to_pylist()]
    assert [int(m) if k else None for m, k in zip(times.ms, times.known, strict=True)] == expected


@settings(deadline=None)
@given(
    st.lists(
        st.none()
        | STAMPS.map(lambda t: t.isoformat() + "Z")
        | st.dates().map(str)
        | st.integers(0, 10**13).map(str)
        | st.sampled_from(["", "NA", "soon", "2013-01-01T00:00:00"]),
        max_size=8,
    )
)
def test_a_column_of_written_times_equals_its_cells(texts: list[str | None]) -> None:
    fast, slow = to_times(pa.array(texts, pa.string())), to_times(list(texts))
    assert fast.known.tolist() == slow.known.tolist()
    assert fast.ms[fast.known].tolist() == slow.ms[slow.known].tolist()
    assert fast.raw == slow.raw
