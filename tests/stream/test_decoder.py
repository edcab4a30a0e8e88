"""Records into columns: what is taken, what is refused and why, and that neighbours are unharmed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config import ModelConfig
from core.records import PlainRecords
from stream.codec.decoder import Decoded, RecordDecoder

FEATURES = {"x": "float", "n": "int", "on": "bool", "c": "category", "maybe": "float?"}
GOOD: dict[str, Any] = {
    "id": "a",
    "ts": 1_000,
    "features": {"x": 1.5, "n": 2, "on": True, "c": "UA", "maybe": 3},
    "label": True,
}


def config(**changes: Any) -> ModelConfig:
    return ModelConfig(**{"task": "binary", "events": "e", "features": FEATURES, **changes})


def records(values: list[bytes | None], keys: list[bytes | None] | None = None) -> PlainRecords:
    n = len(values)
    return PlainRecords(np.arange(n) + 10, values, np.arange(n) + 500, keys or [None] * n, n + 10)


def decode(values: list[bytes | None], keys: list[bytes | None] | None = None, **changes: Any) -> Decoded:
    return RecordDecoder(config(**changes), events=True).decode(records(values, keys))


def good(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def with_features(**changes: Any) -> bytes:
    features = {**GOOD["features"], **changes}
    return good(features={k: v for k, v in features.items() if v is not ...})


def test_a_good_record_fills_the_columns() -> None:
    got = decode([good()])
    assert got.ids == ["a"]
    assert got.ts_ms.tolist() == [1_000]
    assert got.X.tolist() == [[1.5, 2.0, 1.0, 3.0]]
    assert got.objects.tolist() == [["UA"]]
    assert got.labels == [True]
    assert not got.rejects


REFUSED = [
    (b"\xff", "not_utf8"),
    (b'{"id": "a", "junk": "\xff\xfe", ' + good()[1:], "not_utf8"),
    (b"", "malformed"),
    (b"not json", "malformed"),
    (b"[1, 2]", "wrong_type"),
    (good()[:-1], "malformed"),
    (good() + b" {}", "malformed"),
    (good().replace(b"1.5", b"NaN"), "malformed"),
    (good().replace(b"1.5", b"Infinity"), "malformed"),
    (good().replace(b"1.5", b"1e999"), "number_out_of_range"),
    (good().replace(b"1.5", b"-1e999"), "number_out_of_range"),
    (good().replace(b"1.5", b"1e308"), "number_out_of_range"),
    (good().replace(b"1.5", b"1" + b"0" * 400), "number_out_of_range"),
    (good().replace(b"1.5", b"1" + b"0" * 305), "number_out_of_range"),
    (good().replace(b"1.5", b"9007199254740993"), "inexact_number"),
    (with_features(n=2.5), "inexact_number"),
    (with_features(n=2**60), "inexact_number"),
    (with_features(x="1.5"), "wrong_type"),
    (with_features(x=True), "wrong_type"),
    (with_features(x=None), "wrong_type"),
    (with_features(on=1), "wrong_type"),
    (with_features(c=1.5), "wrong_type"),
    (with_features(c=None), "wrong_type"),
    (with_features(c="x" * 300), "category_too_long"),
    (with_features(x=...), "missing_field"),
    (good(features=None), "wrong_type"),
    (good(label="True"), "wrong_type"),
    (good(label=1), "wrong_type"),
    (good(id=""), "bad_id"),
    (good(id="a\nb"), "bad_id"),
    (good(id="a\x00b"), "bad_id"),
    (good(id="x" * 300), "bad_id"),
    (good(id=1.5), "wrong_type"),
    (good(ts="yesterday"), "bad_timestamp"),
    (good(ts="2013-01-01T00:00:00"), "bad_timestamp"),
    (good(ts=10**18), "bad_timestamp"),
    (good(ts=10**30), "bad_timestamp"),
    (good(ts=1.5), "bad_timestamp"),
    (b'{"deep": ' + b"[" * 20_000 + b"]" * 20_000 + b"," + good()[1:], "too_deep"),
    (b'{"deep": ' + b"[" * 40 + b"]" * 40 + b"," + good()[1:], "too_deep"),
    (b'{"pad": "' + b"x" * 5_000_000 + b'",' + good()[1:], "too_large"),
]


@pytest.mark.parametrize(("bad", "reason"), REFUSED, ids=[f"{r}-{i}" for i, (_, r) in enumerate(REFUSED)])
def test_a_bad_record_is_refused_and_its_neighbours_are_unharmed(bad: bytes, reason: str) -> None:
    values = [good(id="before"), bad, good(id="after")]
    got = decode(values, keys=[b"k1", b"k2", b"k3"])
    assert got.ids == ["before", "after"]
    assert got.rows.tolist() == [0, 2]
    assert [(row, error.reason) for row, error in got.rejects] == [(1, reason)]
    assert len(got.rejects[0][1].detail) < 500
    assert got.X.tolist() == [[1.5, 2.0, 1.0, 3.0]] * 2


def test_every_reason_among_many_good_records() -> None:
    values: list[bytes | None] = []
    for i in range(400):
        values.append(good(id=f"g{i}"))
        values.append(REFUSED[i % len(REFUSED)][0] if i % 10 == 0 else good(id=f"h{i}"))
    got = decode(values, keys=[f"k{i}".encode() for i in range(len(values))])
    assert len(got.rejects) == 40
    assert len(got.ids) == len(values) - 40


def test_what_is_lenient_because_nothing_is_lost() -> None:
    got = decode(
        [
            with_features(n=2.0),
            with_features(c=17),
            with_features(maybe=None),
            with_features(maybe=...),
            with_features(extra="ignored"),
            good(ts="1970-01-01T00:00:01Z"),
            good(ts=1000.0),
            good(id=7),
            b'{"label": true, "features": {"c": "UA", "on": true, "n": 2, "maybe": 3, "x": 1.5},'
            b' "ts": 1000, "id": "a"}',
            good().replace(b'"x": 1.5', b'"x": 9, "x": 1.5'),
        ]
    )
    assert not got.rejects
    assert got.objects[1, 0] == "17"
    assert np.isnan(got.X[2:4, 3]).all()
    assert got.ts_ms.tolist() == [1_000] * 10
    assert got.ids[7] == "7"
    # Shuffled keys give the same row; of a key given twice the last counts.
    assert got.X[8].tolist() == got.X[9].tolist() == [1.5, 2.0, 1.0, 3.0]


def test_id_and_time_fall_back_to_key_and_record() -> None:
    body = {k: v for k, v in GOOD.items() if k not in ("id", "ts")}
    value = json.dumps(body).encode()
    got = decode([value, value, value], keys=[b"k", None, b"\xff"])
    assert got.ids == ["k", "@0-11"]
    assert got.ts_ms.tolist() == [500, 501]
    assert [(row, error.reason) for row, error in got.rejects] == [(2, "bad_id")]
    apart = decode([value], keys=[None], labels="l")
    assert [error.reason for _, error in apart.rejects] == ["missing_field"]


def test_tombstones_name_whom_to_forget() -> None:
    got = decode([None, good(), None], keys=[b"gone", None, None])
    assert got.forgets == [(0, "gone")]
    assert got.ids == ["a"]
    assert [(row, error.reason) for row, error in got.rejects] == [(2, "missing_field")]


def test_fields_by_path() -> None:
    changed = {
        "fields": {"id": "meta.key", "ts": "meta.at", "features": "", "label": "outcome.late"},
        "features": {"x": "float at trip.km", "c": "category"},
    }
    value = {"meta": {"key": "k", "at": 5}, "trip": {"km": 2.5}, "c": "UA", "outcome": {"late": False}}
    got = decode([json.dumps(value).encode()], **changed)
    assert (got.ids, got.X.tolist(), got.objects.tolist(), got.labels) == (["k"], [[2.5]], [["UA"]], [False])


def test_open_maps_keep_what_came() -> None:
    got = decode(
        [
            good(features={"a": 1, "b": "x", "c": None, "d": True}),
            good(features={"a": [1]}),
            good(features={"a": 1e300}),
        ],
        features="any",
    )
    assert got.objects.tolist() == [[{"a": 1, "b": "x", "c": None, "d": True}]]
    assert [error.reason for _, error in got.rejects] == ["wrong_type", "number_out_of_range"]


def test_labels_of_their_own_topic() -> None:
    decoder = RecordDecoder(config(labels="l"), events=False)
    values = [b'{"id": "a", "ts": 1, "label": true}', b'{"id": "b", "ts": 2}', b'{"id": "c", "label": null}']
    got = decoder.decode(records(values, [b"a", b"b", b"c"]))
    assert (got.ids, got.labels) == (["a"], [True])
    assert [error.reason for _, error in got.rejects] == ["missing_field", "wrong_type"]


@pytest.mark.parametrize(
    ("changes", "label", "ok"),
    [
        ({"task": "regression"}, 1.5, True),
        ({"task": "regression"}, "1.5", False),
        ({"task": "regression"}, 1e31, False),
        ({"task": "multiclass"}, "a", True),
        ({"task": "multiclass"}, 3, True),
        ({"task": "multiclass"}, 1.5, False),
        ({"classes": ["no", "yes"]}, "yes", True),
        ({"classes": ["no", "yes"]}, True, False),
        ({"classes": [0, 1]}, 1, True),
        ({"classes": [0, 1]}, True, False),
    ],
)
def test_label_types(changes: dict[str, Any], label: Any, ok: bool) -> None:
    got = decode([good(label=label)], **changes)
    assert bool(got.ids) is ok


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.binary(max_size=60) | json_values.map(lambda v: json.dumps(v).encode()), max_size=8))
def test_nothing_at_all_raises(junk: list[bytes]) -> None:
    values: list[bytes | None] = [good(id="first"), *junk, good(id="last")]
    got = decode(values, keys=[b"k"] * len(values))
    assert got.ids[0] == "first"
    assert got.ids[-1] == "last"
    assert len(got.ids) + len(got.rejects) + len(got.forgets) == len(values)


@given(st.dictionaries(st.sampled_from([*FEATURES, "other"]), json_values, max_size=6))
def test_features_of_any_shape_are_taken_or_refused(features: dict[str, Any]) -> None:
    got = decode([json.dumps({**GOOD, "features": features}).encode()], keys=[b"k"])
    assert len(got.ids) + len(got.rejects) == 1
    assert np.isfinite(got.X[:, :3]).all()
