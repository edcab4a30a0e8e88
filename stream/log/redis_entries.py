"""Entries of a Redis stream: many records in one, as columns.

A stream entry costs its reader about ten times what a record costs within one, so records are packed as a
Kafka broker packs them. An entry's id is `<offset of its first record + 1>-0`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from core.errors import LogError
from core.records import Headers, OutRecord, PlainRecords
from stream.log.topics import record_bytes

MAX_ENTRY_RECORDS = 1_000
MAX_ENTRY_BYTES = 256 * 1024
FORMAT = 1

_Values = list[bytes | None]
# format, timestamps as little-endian int64, values, keys (None: no record has one), headers (likewise)
_Blob = tuple[int, bytes, _Values, _Values | None, list[list[tuple[str, bytes]]] | None]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Blob).decode


@dataclass(frozen=True, slots=True)
class Entry:
    """Records with offsets `first`, `first` + 1, ..."""

    first: int
    stamps: bytes
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: Sequence[Headers] | None
    size: int  # bytes in the stream

    @property
    def following(self) -> int:
        return self.first + len(self.values)

    def rows(self, start: int, stop: int) -> Entry:
        """The entry's records from row `start` up to `stop`."""
        return Entry(
            self.first + start,
            self.stamps[start * 8 : stop * 8],
            self.values[start:stop],
            None if self.keys is None else self.keys[start:stop],
            None if self.headers is None else self.headers[start:stop],
            self.size,
        )


def entry_id(offset: int) -> str:
    """The id of the entry whose first record has this offset (0-0 is not allowed, hence + 1)."""
    return f"{offset + 1}-0"


def cut(records: Sequence[OutRecord], rows: Sequence[int]) -> Iterator[list[OutRecord]]:
    """The records at `rows` in groups that fit an entry; a large record gets one of its own."""
    group: list[OutRecord] = []
    group_bytes = 0
    for row in rows:
        record = records[row]
        size = record_bytes(record)
        if group and (len(group) == MAX_ENTRY_RECORDS or group_bytes + size > MAX_ENTRY_BYTES):
            yield group
            group, group_bytes = [], 0
        group.append(record)
        group_bytes += size
    if group:
        yield group


def pack(records: Sequence[OutRecord], now_ms: int) -> bytes:
    """The blob of an entry; records without a timestamp get `now_ms`."""
    stamps = [now_ms if r.timestamp_ms is None else r.timestamp_ms for r in records]
    keys = [r.key for r in records]
    headers = [list(r.headers) for r in records]
    return _encode(
        (
            FORMAT,
            np.array(stamps, dtype="<i8").tobytes(),
            [r.value for r in records],
            None if all(key is None for key in keys) else keys,
            headers if any(headers) else None,
        )
    )


def unpack(stream: str, raw_id: bytes, blob: bytes) -> Entry:
    """The entry with this id. Raises LogError where it is none of ours."""
    first = int(raw_id.partition(b"-")[0]) - 1
    try:
        number, stamps, values, keys, headers = _decode(blob)
    except msgspec.MsgspecError as error:
        raise LogError(f"entry {raw_id.decode()} of {stream} is not readable: {error}") from None
    columns = [len(column) for column in (keys, headers) if column is not None]
    if number != FORMAT or any(n != len(values) for n in [len(stamps) // 8, *columns]):
        raise LogError(f"entry {raw_id.decode()} of {stream} has format {number}, which this is too old for")
    return Entry(first, stamps, values, keys, headers, len(blob))


def records_of(entries: Sequence[Entry]) -> PlainRecords:
    """The records of at least one entry, one after the other."""
    first, last = entries[0], entries[-1]
    values = first.values if len(entries) == 1 else [value for entry in entries for value in entry.values]
    n = len(values)
    if last.following - first.first == n:
        offsets = np.arange(first.first, last.following, dtype=np.int64)
    else:
        offsets = np.concatenate([np.arange(e.first, e.following, dtype=np.int64) for e in entries])
    keys: list[bytes | None]
    if all(entry.keys is None for entry in entries):
        keys = [None] * n
    else:
        keys = [key for e in entries for key in (e.keys or [None] * len(e.values))]
    headers: list[Headers] = []
    if any(entry.headers is not None for entry in entries):
        headers = [each for e in entries for each in (e.headers or [()] * len(e.values))]
    stamps = np.frombuffer(b"".join(entry.stamps for entry in entries), dtype="<i8").astype(np.int64)
    return PlainRecords(offsets, values, stamps, keys, last.following, headers)
