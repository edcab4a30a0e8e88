"""What is special to the log in memory: retention, and threads that share it."""

from __future__ import annotations

import threading

import pytest

from core.clock import ManualClock
from core.errors import OffsetOutOfRange
from core.records import Lane, OutRecord
from stream.log.memory_log import MemoryLog

LANE = Lane("t", 0)


def test_retention_keeps_the_newest() -> None:
    log = MemoryLog(retention_records=5)
    log.create("t")
    log.append("t", [OutRecord(b"%d" % i, timestamp_ms=i, headers=[("h", b"%d" % i)]) for i in range(12)])
    assert log.bounds(LANE) == (7, 12)
    records = log.read({LANE: 8}, 3, 0.0)[LANE]
    assert records.values == [b"8", b"9", b"10"]
    assert records.offsets.tolist() == [8, 9, 10]
    assert records.timestamps_ms.tolist() == [8, 9, 10]
    assert [list(each) for each in records.headers] == [[("h", b"8")], [("h", b"9")], [("h", b"10")]]
    assert records.next_offset == 11
    with pytest.raises(OffsetOutOfRange, match=r"offset 6 .*no longer kept.* 7 up to 12"):
        log.read({LANE: 6}, 1, 0.0)


def test_what_was_read_does_not_change() -> None:
    log = MemoryLog(ManualClock(3), retention_records=2)
    log.create("t")
    log.append("t", [OutRecord(b"a"), OutRecord(b"b")])
    records = log.read({LANE: 0}, 10, 0.0)[LANE]
    log.append("t", [OutRecord(b"c"), OutRecord(b"d")])
    assert (records.values, records.timestamps_ms.tolist()) == ([b"a", b"b"], [3, 3])


def test_many_readers_wait_at_once() -> None:
    log = MemoryLog()
    log.create("t")
    found: list[list[bytes | None]] = []
    readers = [
        threading.Thread(target=lambda: found.append(log.read({LANE: 0}, 1, 20.0)[LANE].values))
        for _ in range(4)
    ]
    for reader in readers:
        reader.start()
    log.append("t", [OutRecord(b"x")])
    for reader in readers:
        reader.join()
    assert found == [[b"x"]] * 4
