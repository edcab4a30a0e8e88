"""Reading and writing a log in tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from core.records import Lane, OutRecord, Records
from stream.log.log import Log

NOW_MS = 1_700_000_000_000
Opener = Callable[[], Log]


def read_to(
    log: Log, start: Mapping[Lane, int], ends: Mapping[Lane, int], limit: int = 1_000
) -> dict[Lane, list[Records]]:
    """Reads on from `start` until every lane stands at its end."""
    positions = dict(start)
    parts: dict[Lane, list[Records]] = {lane: [] for lane in start}
    deadline = time.monotonic() + 30
    while any(positions[lane] < end for lane, end in ends.items()):
        assert time.monotonic() < deadline, f"stands at {positions}, not {ends}"
        for lane, records in log.read(positions, limit, 1.0).items():
            assert 0 < len(records) <= limit
            assert len(records.values) == len(records.keys) == len(records.offsets) == len(records)
            assert records.offsets[0] >= positions[lane]
            assert records.next_offset > records.offsets[-1]
            parts[lane].append(records)
            positions[lane] = records.next_offset
    assert positions == dict(ends)
    return parts


def read_values(log: Log, lane: Lane, start: int, end: int, limit: int = 1_000) -> list[bytes | None]:
    parts = read_to(log, {lane: start}, {lane: end}, limit)[lane]
    return [value for records in parts for value in records.values]


def numbered(n: int, tag: str = "") -> list[OutRecord]:
    return [OutRecord(f"{tag}{i}".encode()) for i in range(n)]
