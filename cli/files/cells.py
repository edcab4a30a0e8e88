"""Cells of a table as the JSON values that a schema's kinds call for.

`cell` is the definition, one value at a time; `to_cells` does a column, the same but fast. A cell that
cannot be converted stays as it is: the pipeline then refuses the record with a reason, so nothing is
dropped here in silence.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.schema import Kind

# "label": a class as the file has it, for tasks whose classes nobody listed.
CellKind = Kind | Literal["label"]
Column: TypeAlias = Any  # a pyarrow Array, or a list of what a JSON parser gives

MISSING_TEXT = frozenset({"", "NA"})
MISSING_NUMBER = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})
_TRUE = frozenset({"true", "yes", "1"})
_FALSE = frozenset({"false", "no", "0"})
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,25}", re.ASCII)
_EXACT = 2.0**53  # above it, a float names no single integer
_BLANK = " \t\r\n\f\v"


def cell(value: Any, kind: CellKind) -> Any:
    """One value as its kind's JSON value; None where it is missing, unchanged where it does not fit."""
    if value is None:
        return None
    if isinstance(value, str):
        return _from_text(value, kind)
    if isinstance(value, bool):
        return ("true" if value else "false") if kind == "category" else value
    if isinstance(value, int):
        return _from_int(value, kind)
    if isinstance(value, float):
        return _from_float(value, kind)
    return _from_other(value, kind)


def _from_text(text: str, kind: CellKind) -> Any:
    if kind in ("category", "label"):
        return None if text in MISSING_TEXT else text
    trimmed = text.strip(_BLANK)
    if kind == "any" and trimmed in MISSING_TEXT:
        return None
    if kind != "any" and trimmed in MISSING_NUMBER:
        return None
    number = float(trimmed) if _NUMBER.fullmatch(trimmed) else math.nan
    if kind == "float":
        return number if math.isfinite(number) else text
    if kind == "int":
        return _integer(trimmed, number, text)
    if kind == "bool":
        return _flag(trimmed, number, text)
    if trimmed in ("true", "false"):
        return trimmed == "true"
    value = _integer(trimmed, math.nan, text)
    return value if isinstance(value, int) else number if math.isfinite(number) else text


def _integer(trimmed: str, number: float, text: str) -> Any:
    if _INTEGER.fullmatch(trimmed):
        value = int(trimmed)
        return value if -(2**63) <= value < 2**63 else text
    return int(number) if abs(number) <= _EXACT and number.is_integer() else text


def _flag(trimmed: str, number: float, text: str) -> Any:
    word = trimmed.casefold()
    if word in _TRUE or number == 1.0:
        return True
    return False if word in _FALSE or number == 0.0 else text


def _from_int(value: int, kind: CellKind) -> Any:
    if kind == "float":
        try:
            return float(value)
        except OverflowError:
            return str(value)
    if kind == "bool" and value in (0, 1):
        return bool(value)
    return str(value) if kind == "category" or not -(2**63) <= value < 2**63 else value


def _from_float(value: float, kind: CellKind) -> Any:
    if math.isnan(value):
        return None
    if not math.isfinite(value):
        return str(value)  # JSON has no infinity: the text is refused where a number is due
    if kind == "category":
        return repr(value)
    if kind == "bool" and value in (0.0, 1.0):
        return bool(value)
    if kind in ("int", "label") and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value


def _from_other(value: Any, kind: CellKind) -> Any:
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return aware.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (list, dict)):
        return value
    try:
        return cell(float(value), kind)  # decimals
    except (TypeError, ValueError):
        return str(value)


def to_cells(column: Column, kind: CellKind) -> list[Any]:
    """A whole column: `[cell(v, kind) for v in column]`, by vector operations where types allow."""
    if isinstance(column, list):
        return [cell(v, kind) for v in column]
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return to_cells(column.dictionary_decode(), kind)
    fast: list[Any] | None = None
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        fast = _text_column(column, kind)
    elif pa.types.is_floating(type_):
        fast = _float_column(column, kind)
    elif pa.types.is_integer(type_) and kind in ("float", "int", "any", "label"):
        fast = _integer_column(column, kind)
    return [cell(v, kind) for v in column.to_pylist()] if fast is None else fast


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    if column.null_count:
        for i in np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False)).tolist():
            values[i] = None
    return values


def _integer_column(column: pa.Array, kind: CellKind) -> list[Any]:
    filled = pc.fill_null(column, 0) if column.null_count else column
    numbers = filled.to_numpy(zero_copy_only=False)
    if numbers.dtype == np.uint64 and len(numbers) and int(numbers.max()) >= 2**63:
        return [cell(v, kind) for v in column.to_pylist()]
    return _with_nulls((numbers.astype(np.float64) if kind == "float" else numbers).tolist(), column)


def _float_column(column: pa.Array, kind: CellKind) -> list[Any] | None:
    if kind not in ("float", "any", "int"):
        return None
    values = pc.fill_null(pc.cast(column, pa.float64()), math.nan).to_numpy(zero_copy_only=False)
    return _numbers(values, kind)


def _numbers(values: np.ndarray[Any, np.dtype[np.float64]], kind: CellKind) -> list[Any] | None:
    """Floats (NaN: missing) as cells; None where the slow way must look at each."""
    missing = np.isnan(values)
    if np.isinf(values).any():
        return None
    if kind == "int":
        known = np.where(missing, 0.0, values)
        if not ((np.abs(known) <= _EXACT) & (np.floor(known) == known)).all():
            return None
        cells: list[Any] = known.astype(np.int64).tolist()
    else:
        cells = values.tolist()
    for i in np.flatnonzero(missing).tolist():
        cells[i] = None
    return cells


def _text_column(column: pa.Array, kind: CellKind) -> list[Any] | None:
    if kind in ("category", "label"):
        texts = column.to_pylist()
        return [None if t in MISSING_TEXT else t for t in texts]
    if kind == "any":
        return None
    trimmed = pc.ascii_trim(column, _BLANK)
    missing = pc.is_in(trimmed, value_set=pa.array(sorted(MISSING_NUMBER), type=column.type))
    trimmed = pc.if_else(missing, None, trimmed)
    if kind == "bool":
        return _few(trimmed, column, kind)
    try:
        values = pc.cast(trimmed, pa.float64())
    except pa.ArrowInvalid:
        return None
    numbers = pc.fill_null(values, math.nan).to_numpy(zero_copy_only=False)
    if int(np.isnan(numbers).sum()) != trimmed.null_count:
        return None  # some spelling of NaN that only Arrow knows
    return _numbers(numbers, kind)


def _few(trimmed: pa.Array, column: pa.Array, kind: CellKind) -> list[Any] | None:
    """Converts each different text once; None where there are many."""
    coded = pc.dictionary_encode(trimmed)
    if len(coded.dictionary) > 16:
        return None
    known = [cell(t, kind) for t in coded.dictionary.to_pylist()]
    if any(isinstance(k, str) for k in known):
        return None  # a text that does not fit stays untrimmed
    values = np.array([*known, None], dtype=object)
    codes = pc.fill_null(coded.indices, len(known)).to_numpy(zero_copy_only=False)
    cells: list[Any] = values[codes].tolist()
    return cells if len(cells) == len(column) else None
