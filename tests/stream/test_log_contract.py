"""What every log promises to readers, over Kafka, Redis Streams and memory."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from core.errors import LogError, OffsetOutOfRange, UnknownTopic
from core.records import Lane, OutRecord
from stream.log.log import Log
from tests.stream.log_harness import NOW_MS, Opener, numbered, read_to, read_values


def test_records_come_back_in_order_with_growing_offsets(log: Log, topic: str) -> None:
    log.create(topic)
    (lane,) = log.lanes(topic)
    assert lane == Lane(topic, 0)
    assert log.bounds(lane) == (0, 0)
    log.append(topic, numbered(3))
    log.append(topic, numbered(4, "b"))
    assert log.bounds(lane) == (0, 7)
    parts = read_to(log, {lane: 0}, {lane: 7})[lane]
    values = [value for records in parts for value in records.values]
    assert values == [b"0", b"1", b"2", b"b0", b"b1", b"b2", b"b3"]
    offsets = np.concatenate([records.offsets for records in parts])
    assert offsets.dtype == np.int64
    assert offsets.tolist() == list(range(7))


@pytest.mark.parametrize("start", [0, 1, 4, 5, 8])
def test_reading_starts_at_any_offset(log: Log, topic: str, start: int) -> None:
    log.create(topic)
    log.append(topic, numbered(5))
    log.append(topic, numbered(4, "b"))
    expected = [r.value for r in [*numbered(5), *numbered(4, "b")]]
    assert read_values(log, Lane(topic, 0), start, 9) == expected[start:]


def test_reading_again_gives_the_same(log: Log, topic: str) -> None:
    log.create(topic)
    log.append(topic, numbered(50))
    lane = Lane(topic, 0)
    whole = read_values(log, lane, 0, 50)
    assert read_values(log, lane, 0, 50, limit=7) == whole
    assert read_values(log, lane, 20, 50) == whole[20:]
    assert read_values(log, lane, 3, 50) == whole[3:]
    assert log.bounds(lane) == (0, 50)


def test_the_limit_holds_and_the_rest_follows(log: Log, topic: str) -> None:
    log.create(topic)
    log.append(topic, numbered(25))
    lane = Lane(topic, 0)
    parts = read_to(log, {lane: 0}, {lane: 25}, limit=10)[lane]
    assert all(len(records) <= 10 for records in parts)
    assert [v for records in parts for v in records.values] == [r.value for r in numbered(25)]
    assert len(log.read({lane: 0}, 1, 5.0)[lane]) == 1
    assert log.read({lane: 0}, 0, 0.0) == {}


def test_records_can_be_split(log: Log, topic: str) -> None:
    log.create(topic)
    log.append(
        topic,
        [
            OutRecord(b"%d" % i, key=b"k%d" % i, timestamp_ms=NOW_MS + i, headers=[("h", b"%d" % i)])
            for i in range(9)
        ],
    )
    lane = Lane(topic, 0)
    records = log.read({lane: 0}, 100, 10.0)[lane]
    assert len(records) == 9
    for n in (0, 1, 8, 9, 10):
        head, tail = records.upto(n), records.after(n)
        assert list(head.values) + list(tail.values) == records.values
        assert list(head.keys) + list(tail.keys) == records.keys
        assert list(head.headers) + list(tail.headers) == list(records.headers)
        assert np.array_equal(np.concatenate([head.offsets, tail.offsets]), records.offsets)
        assert np.array_equal(np.concatenate([head.timestamps_ms, tail.timestamps_ms]), records.timestamps_ms)
        assert head.next_offset == (n if n < 9 else 9)
        assert tail.next_offset == 9
        assert (len(head), len(tail)) == (min(n, 9), max(0, 9 - n))


def test_lanes_are_separate_and_read_together(log: Log, topic: str) -> None:
    log.create(topic, 3)
    lanes = log.lanes(topic)
    assert lanes == [Lane(topic, p) for p in range(3)]
    log.append(topic, [OutRecord(b"%d" % i, partition=i % 3) for i in range(30)])
    parts = read_to(log, dict.fromkeys(lanes, 0), dict.fromkeys(lanes, 10))
    for lane in lanes:
        values = [v for records in parts[lane] for v in records.values]
        assert values == [b"%d" % i for i in range(30) if i % 3 == lane.partition]
    later = read_to(log, {lanes[0]: 4, lanes[2]: 9}, {lanes[0]: 10, lanes[2]: 10})
    assert sum(len(records) for records in later[lanes[0]]) == 6
    assert sum(len(records) for records in later[lanes[2]]) == 1


def test_topics_are_read_together(log: Log, topic: str) -> None:
    other = topic + "-labels"
    log.create(topic)
    log.create(other)
    log.append(topic, numbered(500))
    log.append(other, numbered(3, "label"))
    start = {Lane(topic, 0): 0, Lane(other, 0): 0}
    parts = read_to(log, start, {Lane(topic, 0): 500, Lane(other, 0): 3}, limit=100)
    assert [v for records in parts[Lane(other, 0)] for v in records.values] == [
        b"label0",
        b"label1",
        b"label2",
    ]
    assert sum(len(records) for records in parts[Lane(topic, 0)]) == 500


def test_an_empty_wait_ends_in_time(log: Log, topic: str) -> None:
    log.create(topic)
    lane = Lane(topic, 0)
    for wait_s in (0.0, 0.15):
        began = time.monotonic()
        assert log.read({lane: 0}, 10, wait_s) == {}
        assert wait_s * 0.9 <= time.monotonic() - began < wait_s + 3.0
    log.append(topic, numbered(2))
    assert read_values(log, lane, 0, 2) == [b"0", b"1"]
    assert log.read({lane: 2}, 10, 0.05) == {}


@pytest.mark.parametrize("topics", [1, 2])
def test_a_wait_ends_when_a_record_arrives(log: Log, topic: str, topics: int) -> None:
    names = [f"{topic}-{i}" for i in range(topics)]
    for name in names:
        log.create(name)
    start = {Lane(name, 0): 0 for name in names}
    assert log.read(start, 10, 0.0) == {}

    def append_later() -> None:
        time.sleep(0.2)
        log.append(names[-1], numbered(1))

    appender = threading.Thread(target=append_later)
    began = time.monotonic()
    appender.start()
    found = log.read(start, 10, 20.0)
    took_s = time.monotonic() - began
    appender.join()
    assert found[Lane(names[-1], 0)].values == [b"0"]
    assert took_s < 10.0  # not the whole wait


def test_unknown_topics_and_partitions(log: Log, topic: str) -> None:
    began = time.monotonic()
    for act in (
        lambda: log.lanes(topic),
        lambda: log.append(topic, numbered(1)),
        lambda: log.read({Lane(topic, 0): 0}, 10, 0.0),
        lambda: log.bounds(Lane(topic, 0)),
    ):
        with pytest.raises(UnknownTopic, match=topic):
            act()
    log.create(topic, 2)
    for missing in (2, 7):
        with pytest.raises(UnknownTopic, match=topic):
            log.read({Lane(topic, missing): 0}, 10, 0.0)
        with pytest.raises(UnknownTopic, match=topic):
            log.bounds(Lane(topic, missing))
        with pytest.raises(LogError, match=topic):
            log.append(topic, [OutRecord(b"x", partition=missing)])
    assert time.monotonic() - began < 10.0
    assert [log.bounds(lane) for lane in log.lanes(topic)] == [(0, 0), (0, 0)]
    log.append(topic, [OutRecord(b"x", partition=1)])
    assert read_values(log, Lane(topic, 1), 0, 1) == [b"x"]


def test_an_offset_above_the_end_is_refused(log: Log, topic: str) -> None:
    log.create(topic)
    lane = Lane(topic, 0)
    log.append(topic, numbered(5))
    with pytest.raises(OffsetOutOfRange, match=r"offset 6 .* above the end.* 0 up to 5"):
        log.read({lane: 6}, 10, 10.0)
    with pytest.raises(OffsetOutOfRange):
        log.read({lane: 1_000_000}, 10, 10.0)
    assert log.read({lane: 5}, 10, 0.05) == {}
    assert read_values(log, lane, 0, 5) == [b"%d" % i for i in range(5)]


def test_another_client_sees_the_same(open_again: Opener, topic: str) -> None:
    first = open_again()
    first.create(topic, 2)
    first.append(topic, [OutRecord(b"%d" % i, partition=i % 2) for i in range(10)])
    second = open_again()
    assert second.lanes(topic) == first.lanes(topic)
    assert read_values(second, Lane(topic, 1), 2, 5) == [b"5", b"7", b"9"]
    second.append(topic, [OutRecord(b"more", partition=1)])
    assert read_values(first, Lane(topic, 1), 4, 6) == [b"9", b"more"]
