"""What every JSON edge checks and says alike: decoding errors, ids, times, depth."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from core.errors import BadRecord
from core.plain import IntArray

MAX_ID_CHARS = 256
# Years 1 to 9999, so that every time can be shown as a date.
MIN_TS_MS, MAX_TS_MS = -62_135_596_800_000, 253_402_300_799_999

TimestampType = int | float | datetime | None  # as a msgspec field: epoch milliseconds or RFC 3339
IdType = str | int | None


def bad_record(error: Exception) -> BadRecord:
    """The refusal that a decoding error stands for. Other errors are raised again."""
    text = str(error)
    if isinstance(error, BadRecord):
        return error
    if isinstance(error, msgspec.ValidationError):
        if "missing required field" in text:
            return BadRecord("missing_field", text)
        if "out of range" in text:
            return BadRecord("number_out_of_range", text)
        if "RFC3339" in text:
            return BadRecord("bad_timestamp", text)
        return BadRecord("wrong_type", text)
    if isinstance(error, msgspec.DecodeError):
        return BadRecord("not_utf8" if "UTF-8" in text else "malformed", text)
    if isinstance(error, UnicodeDecodeError):
        return BadRecord("not_utf8", f"byte {error.start} is no UTF-8")
    if isinstance(error, RecursionError):
        return BadRecord("too_deep", "nested too deeply to be read")
    raise error


def check_depth(data: bytes, limit: int) -> None:
    """Raises BadRecord where brackets outside strings nest deeper than `limit`."""
    if data.count(b"{") + data.count(b"[") <= limit:
        return
    depth = 0
    in_string = escaped = False
    for byte in data:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x7B, 0x5B):
            depth += 1
            if depth > limit:
                raise BadRecord("too_deep", f"nested deeper than {limit}")
        elif byte in (0x7D, 0x5D):
            depth -= 1


def check_id(value: str | int) -> str:
    """The id as text: 1 to 256 printable characters. Raises BadRecord."""
    if isinstance(value, int):
        if value.bit_length() > 64:
            raise BadRecord("bad_id", "id: a number of more than 64 bits")
        return str(value)
    if not value or len(value) > MAX_ID_CHARS:
        raise BadRecord("bad_id", f"id: 1 to {MAX_ID_CHARS} characters, not {len(value)}")
    if not value.isprintable():
        raise BadRecord("bad_id", "id: printable characters only")
    return value


def plain_ids(values: Sequence[Any]) -> bool:
    """Whether all are texts that `check_id` would take as they are; one quick look at many."""
    try:
        whole = "".join(values)
    except TypeError:
        return False
    lengths = set(map(len, values))
    if 0 in lengths or max(lengths, default=1) > MAX_ID_CHARS:
        return False
    if not whole.isascii():
        return whole.isprintable()
    codes = np.frombuffer(whole.encode(), np.uint8)
    return not codes.size or bool(codes.min() >= 0x20 and codes.max() <= 0x7E)


def check_ts(value: float | datetime) -> int:
    """Epoch milliseconds of a time in a record. Raises BadRecord."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise BadRecord("bad_timestamp", "ts: a time with its offset from UTC, as RFC 3339 has it")
        return round(value.timestamp() * 1000)
    if value != int(value) or not MIN_TS_MS <= value <= MAX_TS_MS:
        raise BadRecord("bad_timestamp", f"ts: whole milliseconds since 1970, not {value!r:.40}")
    return int(value)


def plain_times(values: Sequence[Any]) -> IntArray | None:
    """The times as an array where all are whole milliseconds in range, else None."""
    if set(map(type, values)) != {int}:
        return None
    try:
        array = np.array(values, dtype=np.int64)
    except OverflowError:
        return None
    if array.min() < MIN_TS_MS or array.max() > MAX_TS_MS:
        return None
    return array
