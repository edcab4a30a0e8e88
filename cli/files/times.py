"""Times as files write them, in milliseconds since 1970 UTC."""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cli.files.cells import MISSING_NUMBER, Column, cell
from core.plain import BoolArray, IntArray

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?", re.ASCII)
_MILLISECONDS = re.compile(r"-?\d{1,16}(?:\.0*)?", re.ASCII)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EARLIEST, _LATEST = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999


@dataclass(frozen=True, slots=True)
class Times:
    """A column of instants. Where `known` is False `ms` means nothing: the cell is missing, or what
    `raw` (by row) holds, which is no time."""

    ms: IntArray
    known: BoolArray
    raw: dict[int, Any]


def parse_ms(value: Any) -> int | None:
    """RFC 3339 (no offset: UTC), a date (midnight UTC), or epoch milliseconds; finer parts are cut off.
    None: missing. Raises ValueError where it is no time."""
    if isinstance(value, str):
        text = value.strip()
        if text in MISSING_NUMBER:
            return None
        if _MILLISECONDS.fullmatch(text):
            return _in_range(int(text.split(".")[0]))
        if not _DATE.fullmatch(text):
            raise ValueError(f"not a time: {text[:40]!r}")
        return _instant(dt.datetime.fromisoformat(text))
    if value is None:
        return None
    if isinstance(value, dt.datetime):
        return _instant(value)
    if isinstance(value, dt.date):
        return _instant(dt.datetime(value.year, value.month, value.day))
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != math.floor(value):
        raise ValueError(f"not a time: {str(value)[:40]!r}")
    return _in_range(int(value))


def _in_range(ms: int) -> int:
    if not _EARLIEST <= ms <= _LATEST:
        raise ValueError(f"outside the years 1 to 9999: {ms}")
    return ms


def _instant(value: dt.datetime) -> int:
    aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(milliseconds=1)


def to_times(column: Column) -> Times:
    """A whole column: `parse_ms` of each value."""
    if not isinstance(column, list):
        fast = _fast(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)
        if fast is not None:
            return fast
        column = column.to_pylist()
    ms = np.zeros(len(column), np.int64)
    known = np.zeros(len(column), np.bool_)
    raw: dict[int, Any] = {}
    for i, value in enumerate(column):
        try:
            instant = parse_ms(value)
        except (ValueError, OverflowError):
            raw[i] = cell(value, "any")
            continue
        if instant is not None:
            ms[i], known[i] = instant, True
    return Times(ms, known, raw)


def _fast(column: pa.Array) -> Times | None:
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        missing = pc.is_in(column, value_set=pa.array(sorted(MISSING_NUMBER), type=type_))
        texts = pc.if_else(missing, None, column)
        for zone in ("UTC", None):
            try:
                return _fast(pc.cast(texts, pa.timestamp("us", zone)))
            except pa.ArrowInvalid:
                continue
        return None
    if pa.types.is_date(type_):
        column = pc.cast(column, pa.timestamp("ms"))
    if pa.types.is_timestamp(column.type):
        scale = {"s": 1_000, "ms": 1, "us": -1_000, "ns": -1_000_000}[column.type.unit]
        raw = pc.fill_null(pc.cast(column, pa.int64()), 0).to_numpy(zero_copy_only=False)
        ms = raw * scale if scale > 0 else raw // -scale
    elif pa.types.is_integer(type_):
        try:
            ms = pc.fill_null(pc.cast(column, pa.int64()), 0).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return None
        if len(ms) and not _EARLIEST <= int(ms.min()) <= int(ms.max()) <= _LATEST:
            return None
    else:
        return None
    known = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return Times(ms.astype(np.int64), known.astype(np.bool_), {})
