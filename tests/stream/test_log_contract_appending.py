"""What every log promises to those who append, over Kafka, Redis Streams and memory."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from core.errors import LogError
from core.records import Lane, OutRecord
from stream.log.kafka_log import KafkaLog
from stream.log.log import Log
from stream.log.topics import partition_of
from tests.stream.log_harness import NOW_MS, Opener, read_to, read_values


def test_a_key_has_one_lane_the_same_in_every_log(log: Log, topic: str) -> None:
    log.create(topic, 4)
    keys = [f"key-{i % 40}".encode() for i in range(200)]
    log.append(topic, [OutRecord(b"%d" % i, key=key) for i, key in enumerate(keys)])
    ends = {lane: log.bounds(lane)[1] for lane in log.lanes(topic)}
    assert sum(ends.values()) == 200
    parts = read_to(log, dict.fromkeys(ends, 0), ends)
    for lane, several in parts.items():
        found = [key for records in several for key in records.keys]
        assert {partition_of(key, 4) for key in found if key is not None} <= {lane.partition}
        numbers = [int(value or b"-1") for records in several for value in records.values]
        assert numbers == [i for i, key in enumerate(keys) if partition_of(key, 4) == lane.partition]


def test_records_without_key_reach_the_log(log: Log, topic: str) -> None:
    log.create(topic, 3)
    for i in range(12):
        log.append(topic, [OutRecord(b"%d" % i)])
    ends = {lane: log.bounds(lane)[1] for lane in log.lanes(topic)}
    parts = read_to(log, dict.fromkeys(ends, 0), ends)
    values = [v for several in parts.values() for records in several for v in records.values]
    assert sorted(values) == sorted(b"%d" % i for i in range(12))


def test_tombstones_empty_values_keys_and_headers(log: Log, topic: str) -> None:
    log.create(topic)
    log.append(
        topic,
        [
            OutRecord(None, key=b"gone"),
            OutRecord(b"", key=b""),
            OutRecord(b"\x00\xff", headers=[("a", b"1"), ("a", b"2"), ("empty", b"")]),
            OutRecord("é".encode(), key=b"\xff"),
        ],
    )
    parts = read_to(log, {Lane(topic, 0): 0}, {Lane(topic, 0): 4})[Lane(topic, 0)]
    assert [v for r in parts for v in r.values] == [None, b"", b"\x00\xff", "é".encode()]
    assert [k for r in parts for k in r.keys] == [b"gone", b"", None, b"\xff"]
    headers = [list(h) for r in parts for h in (r.headers or [()] * len(r))]
    assert headers == [[], [], [("a", b"1"), ("a", b"2"), ("empty", b"")], []]


def test_timestamps_are_kept_and_stamped(log: Log, topic: str) -> None:
    log.create(topic)
    stamps = [1, NOW_MS + 5, NOW_MS - 7, 1_385_000_000_000]
    log.append(topic, [OutRecord(b"x", timestamp_ms=stamp) for stamp in stamps])
    before_ms = NOW_MS if not isinstance(log, KafkaLog) else time.time_ns() // 1_000_000
    log.append(topic, [OutRecord(b"now")])
    after_ms = NOW_MS if not isinstance(log, KafkaLog) else time.time_ns() // 1_000_000
    parts = read_to(log, {Lane(topic, 0): 0}, {Lane(topic, 0): 5})[Lane(topic, 0)]
    found = np.concatenate([records.timestamps_ms for records in parts])
    assert found.dtype == np.int64
    assert found[:4].tolist() == stamps
    assert before_ms <= found[4] <= after_ms


def test_topics_are_made_once(log: Log, topic: str) -> None:
    log.create(topic, 2)
    log.append(topic, [OutRecord(b"x", partition=1)])
    log.create(topic, 2)
    log.create(topic, 5)
    assert len(log.lanes(topic)) == 2
    assert log.bounds(Lane(topic, 1)) == (0, 1)
    for name in ("", "a b", "a/b", "é", "x" * 250, ".."):
        with pytest.raises(LogError, match="topic's name"):
            log.create(name)
    with pytest.raises(LogError, match="partition"):
        log.create(topic + "-none", 0)


def test_an_oversized_record_is_refused_and_nothing_of_its_append_is_there(log: Log, topic: str) -> None:
    log.create(topic)
    lane = Lane(topic, 0)
    large = OutRecord(b"x" * 1_000_001)
    with pytest.raises(LogError, match=r"record 1 .*1000001 bytes.*1000000"):
        log.append(topic, [OutRecord(b"before"), large, OutRecord(b"after")])
    assert log.bounds(lane) == (0, 0)
    biggest = OutRecord(b"y" * 999_000, key=b"k" * 500)
    log.append(topic, [OutRecord(b"small"), biggest, OutRecord(b"small too")])
    assert read_values(log, lane, 0, 3) == [b"small", biggest.value, b"small too"]


def test_a_large_append_arrives_whole(log: Log, topic: str) -> None:
    log.create(topic, 2)
    records = [OutRecord(b"%d" % i + b"." * 100, key=b"%d" % (i % 977)) for i in range(20_000)]
    log.append(topic, records)
    ends = {lane: log.bounds(lane)[1] for lane in log.lanes(topic)}
    parts = read_to(log, dict.fromkeys(ends, 0), ends, limit=4_096)
    for lane, several in parts.items():
        own = [r.value for r in records if partition_of(r.key or b"", 2) == lane.partition]
        assert [v for one in several for v in one.values] == own
        offsets = np.concatenate([one.offsets for one in several])
        assert np.array_equal(offsets, np.arange(len(own)))


def test_several_appenders_lose_nothing_and_keep_their_order(open_again: Opener, topic: str) -> None:
    first, second = open_again(), open_again()
    first.create(topic)
    failed: list[Exception] = []

    def append(log: Log, tag: str) -> None:
        try:
            for i in range(40):
                log.append(topic, [OutRecord(f"{tag}-{i}-{j}".encode()) for j in range(i % 4 + 1)])
        except Exception as error:  # shown by the assertion below
            failed.append(error)

    threads = [
        threading.Thread(target=append, args=(log, tag))
        for log, tag in ((first, "a"), (first, "b"), (second, "c"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    lane = Lane(topic, 0)
    assert first.bounds(lane) == second.bounds(lane) == (0, 300)
    values = [value or b"" for value in read_values(second, lane, 0, 300)]
    for tag in ("a", "b", "c"):
        own = [value.decode() for value in values if value.startswith(tag.encode())]
        assert own == [f"{tag}-{i}-{j}" for i in range(40) for j in range(i % 4 + 1)]


def test_input_comes_back_unchanged(log: Log, topic: str) -> None:
    log.create(topic)
    records = [OutRecord(b"v", b"k", 5, [("h", b"x")], 0), OutRecord(None)]
    start = {Lane(topic, 0): 0}
    kept: tuple[Sequence[OutRecord], Mapping[Lane, int]] = (copy.deepcopy(records), dict(start))
    log.append(topic, records)
    log.append(topic, [])
    assert log.read(start, 10, 10.0)
    assert (records, start) == kept
    assert log.bounds(Lane(topic, 0)) == (0, 2)
