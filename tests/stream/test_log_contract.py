"""What every log promises, over Kafka, Redis Streams and memory."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest

from core.clock import ManualClock
from core.errors import LogError, OffsetOutOfRange, UnknownTopic
from core.records import Lane, OutRecord, Records
from stream.log.kafka_log import KafkaLog
from stream.log.log import Log
from stream.log.memory_log import MemoryLog
from stream.log.redis_log import RedisLog
from stream.log.topics import partition_of

NOW_MS = 1_700_000_000_000
Opener = Callable[[], Log]


@pytest.fixture(scope="module")
def kafka_log(kafka_url: str) -> Iterator[KafkaLog]:
    """One client for all tests: a new producer takes half a second before its first append."""
    log = KafkaLog(kafka_url.removeprefix("kafka://"))
    yield log
    log.close()


@pytest.fixture(
    params=[
        "memory",
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("kafka", marks=pytest.mark.kafka),
    ]
)
def open_again(request: pytest.FixtureRequest) -> Iterator[Opener]:
    """Opens the log under test; each call is another client of the same log."""
    opened: list[Log] = []
    if request.param == "memory":
        only = MemoryLog(ManualClock(NOW_MS))

        def open_it() -> Log:
            return only

    elif request.param == "redis":
        url = request.getfixturevalue("redis_url")

        def open_it() -> Log:
            opened.append(RedisLog(url, ManualClock(NOW_MS)))
            return opened[-1]

    else:
        shared = request.getfixturevalue("kafka_log")
        servers = request.getfixturevalue("kafka_url").removeprefix("kafka://")
        calls = iter([shared])

        def open_it() -> Log:
            first: Log | None = next(calls, None)
            if first is not None:
                return first
            opened.append(KafkaLog(servers))
            return opened[-1]

    yield open_it
    for log in opened:
        log.close()


@pytest.fixture
def log(open_again: Opener) -> Log:
    return open_again()


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


def test_another_client_sees_the_same(open_again: Opener, topic: str) -> None:
    first = open_again()
    first.create(topic, 2)
    first.append(topic, [OutRecord(b"%d" % i, partition=i % 2) for i in range(10)])
    second = open_again()
    assert second.lanes(topic) == first.lanes(topic)
    assert read_values(second, Lane(topic, 1), 2, 5) == [b"5", b"7", b"9"]
    second.append(topic, [OutRecord(b"more", partition=1)])
    assert read_values(first, Lane(topic, 1), 4, 6) == [b"9", b"more"]


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
