"""What only a real Redis can show: packing, retention, races, restarts, refusals."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.embedded_redis import EmbeddedRedis
from core.clock import ManualClock
from core.errors import ConfigError, LogError, LogUnavailable, OffsetOutOfRange, UnknownTopic
from core.records import Lane, OutRecord
from stream.log.redis_entries import MAX_ENTRY_RECORDS, cut, pack, records_of, unpack
from stream.log.redis_log import RedisLog, stream_key

pytestmark = pytest.mark.redis
LANE = Lane("t", 0)


@pytest.fixture
def log(redis_url: str) -> Iterator[RedisLog]:
    log = RedisLog(redis_url)
    log.create("t")
    yield log
    log.close()


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def numbered(start: int, stop: int) -> list[OutRecord]:
    return [OutRecord(b"%d" % i) for i in range(start, stop)]


def read_values(log: RedisLog, start: int, end: int, limit: int = 1_000) -> list[bytes | None]:
    found: list[bytes | None] = []
    while start < end:
        records = log.read({LANE: start}, limit, 5.0)[LANE]
        found += records.values
        start = records.next_offset
    return found


def test_many_records_share_an_entry(log: RedisLog, client: redis.Redis) -> None:
    log.append("t", numbered(0, 2_500))
    assert client.xlen(stream_key(LANE)) == 3
    log.append("t", [OutRecord(b"x" * 200_000), OutRecord(b"y" * 200_000)])
    assert client.xlen(stream_key(LANE)) == 5
    ids: Any = client.xrange(stream_key(LANE))
    assert [raw_id for raw_id, _ in ids] == [b"1-0", b"1001-0", b"2001-0", b"2501-0", b"2502-0"]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    reads=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 60)), min_size=1, max_size=8),
)
def test_any_read_equals_the_slice(redis_url: str, sizes: list[int], reads: list[tuple[float, int]]) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    log = RedisLog(redis_url)
    log.create("t")
    total = sum(sizes)
    start = 0
    for size in sizes:
        log.append("t", numbered(start, start + size))
        start += size
    position = 0
    for share, limit in reads:
        for offset in (int(share * total), position):  # a jump, then on from where that ended before
            records = log.read({LANE: offset}, limit, 0.0).get(LANE)
            expected = list(range(offset, min(offset + limit, total)))
            assert (records.offsets.tolist() if records else []) == expected
            assert (records.values if records else []) == [b"%d" % i for i in expected]
            position = records.next_offset if records else offset
    log.close()


@given(
    st.lists(
        st.builds(
            OutRecord,
            st.none() | st.binary(max_size=9),
            st.none() | st.binary(max_size=9),
            st.none() | st.integers(-(2**62), 2**62),
            st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), max_size=2),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_an_entry_gives_back_what_was_packed(records: list[OutRecord]) -> None:
    entry = unpack("s", b"8-0", pack(records, now_ms=77))
    found = records_of([entry])
    assert found.values == [r.value for r in records]
    assert found.keys == [r.key for r in records]
    assert [list(h) for h in found.headers or [()] * len(records)] == [list(r.headers) for r in records]
    assert found.timestamps_ms.tolist() == [77 if r.timestamp_ms is None else r.timestamp_ms for r in records]
    assert found.offsets.tolist() == list(range(7, 7 + len(records)))
    two = records_of([entry.rows(0, 1), entry.rows(1, len(records))])
    assert (two.values, two.keys, two.next_offset) == (found.values, found.keys, found.next_offset)
    assert np.array_equal(two.offsets, found.offsets)
    assert np.array_equal(two.timestamps_ms, found.timestamps_ms)


def test_entries_are_cut_by_number_and_bytes() -> None:
    records = [OutRecord(b"x" * size) for size in [1] * 1_500 + [200_000, 100_000, 100_000, 900_000, 1]]
    groups = list(cut(records, range(len(records))))
    assert [r for group in groups for r in group] == records
    assert [len(group) for group in groups] == [MAX_ENTRY_RECORDS, 501, 2, 1, 1]


def test_retention_keeps_the_newest_and_says_what_is_gone(redis_url: str) -> None:
    log = RedisLog(redis_url, retention_records=1_500)
    log.create("t")
    for start in range(0, 10_000, 500):
        log.append("t", numbered(start, start + 500))
    oldest, following = log.bounds(LANE)
    assert following == 10_000
    assert 1_500 <= following - oldest <= 1_500 + 2 * MAX_ENTRY_RECORDS
    with pytest.raises(OffsetOutOfRange, match=rf"offset 0 .*no longer kept.* {oldest} up to 10000"):
        log.read({LANE: 0}, 10, 0.0)
    assert read_values(log, oldest, following) == [b"%d" % i for i in range(oldest, following)]
    log.close()


def test_a_reader_that_retention_overtakes_is_told(redis_url: str) -> None:
    slow = RedisLog(redis_url)
    slow.create("t")
    fast = RedisLog(redis_url, retention_records=100)
    fast.append("t", numbered(0, 1_000))
    assert slow.read({LANE: 0}, 1_000, 5.0)[LANE].next_offset == 1_000
    for start in range(1_000, 6_000, 1_000):
        fast.append("t", numbered(start, start + 1_000))
    with pytest.raises(OffsetOutOfRange, match="offset 1000 "):
        slow.read({LANE: 1_000}, 10, 0.0)
    for log in (slow, fast):
        log.close()


def test_a_lost_answer_does_not_append_twice(log: RedisLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append("t", numbered(0, 3))
    real = log._client.xadd

    def applied_but_refused(*args: Any, **kwargs: Any) -> Any:
        """What a retry within the client looks like when the first try went through."""
        monkeypatch.setattr(log._client, "xadd", real)
        real(*args, **kwargs)
        return real(*args, **kwargs)

    monkeypatch.setattr(log._client, "xadd", applied_but_refused)
    log.append("t", numbered(3, 6))
    log.append("t", numbered(6, 7))
    assert read_values(log, 0, 7) == [b"%d" % i for i in range(7)]
    assert log.bounds(LANE) == (0, 7)


def test_data_that_the_server_lost_is_noticed(log: RedisLog, client: redis.Redis) -> None:
    log.append("t", numbered(0, 10))
    assert read_values(log, 0, 10)
    client.delete(stream_key(LANE))
    client.xadd(stream_key(LANE), {b"r": pack(numbered(0, 2), 0), b"t": b""}, id="1-0")
    began = time.monotonic()
    found: list[Exception] = []
    while not found and time.monotonic() - began < 20:
        try:
            assert log.read({LANE: 10}, 10, 0.3) == {}
        except OffsetOutOfRange as error:
            found.append(error)
    assert "offset 10 of t/0 is above the end" in str(found)


def test_a_killed_server_is_reported_and_its_return_noticed(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server:
        log = RedisLog(server.url)
        log.create("t")
        log.append("t", numbered(0, 5))
        assert read_values(log, 0, 5) == [b"%d" % i for i in range(5)]
        time.sleep(1.5)  # the append-only file is synced every second
        os.kill(server.pid, signal.SIGKILL)
        for act in (
            lambda: log.append("t", numbered(0, 1)),
            lambda: log.read({LANE: 5}, 1, 0.1),
            lambda: log.read({LANE: 0}, 1, 0.1),
            lambda: log.bounds(LANE),
            lambda: log.lanes("t"),
            lambda: log.create("u"),
        ):
            with pytest.raises(LogUnavailable, match=r"cannot be reached") as raised:
                act()
            assert raised.value.retriable
        server.start()
        log.append("t", numbered(5, 8))
        assert read_values(log, 0, 8) == [b"%d" % i for i in range(8)]
        log.close()


def test_a_waiting_reader_hears_that_the_server_went(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server:
        log = RedisLog(server.url)
        log.create("t")
        assert log.read({LANE: 0}, 1, 0.0) == {}
        killer = threading.Timer(0.2, os.kill, (server.pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(LogUnavailable):
            log.read({LANE: 0}, 1, 20.0)
        killer.join()
        log.close()


def test_a_full_server_is_named_and_reading_goes_on(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path, options={"maxmemory": "3mb"}) as server:
        log = RedisLog(server.url)
        log.create("t")
        appended = 0
        refused = ""
        while not refused and appended < 100:
            try:
                log.append("t", [OutRecord(os.urandom(100_000))])
                appended += 1
            except LogUnavailable as error:
                refused = str(error)
        assert "raise maxmemory" in refused
        assert log.bounds(LANE) == (0, appended)
        assert len(read_values(log, 0, appended)) == appended
        log.close()


def test_a_replica_is_named(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        log = RedisLog(server.url)
        log.create("t")
        client.replicaof("127.0.0.1", "9")
        with pytest.raises(LogUnavailable, match="replica"):
            log.append("t", numbered(0, 1))
        client.replicaof("NO", "ONE")
        log.append("t", numbered(0, 1))
        log.close()


def test_a_password_is_asked_for_and_not_told(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "open-sesame")
        for url in (server.url, server.url.replace("unix://", "unix://:wrong-word@")):
            log = RedisLog(url)
            with pytest.raises(LogUnavailable, match="let us in") as raised:
                log.lanes("t")
            assert "wrong-word" not in str(raised.value)
            log.close()
        log = RedisLog(server.url.replace("unix://", "unix://:open-sesame@"))
        log.create("t")
        with pytest.raises(UnknownTopic) as unknown:
            log.lanes("other")
        assert "open-sesame" not in str(unknown.value)
        log.close()


def test_a_stream_of_somebody_else_is_refused(log: RedisLog, client: redis.Redis) -> None:
    client.xadd(stream_key(LANE), {b"r": b"\xc1", b"t": b""}, id="1-0")
    with pytest.raises(LogError, match="not readable"):
        log.read({LANE: 0}, 10, 0.0)


def test_options_of_the_client_are_checked(redis_url: str) -> None:
    with pytest.raises(ConfigError, match="no_such_option"):
        RedisLog(redis_url, client_options={"no_such_option": 1})


def test_an_appender_of_two_lanes_does_not_mix_them(redis_url: str) -> None:
    log = RedisLog(redis_url, ManualClock(5))
    log.create("two", 2)
    log.append("two", [OutRecord(b"%d" % i, partition=i % 2) for i in range(7)])
    assert log.read({Lane("two", 0): 0, Lane("two", 1): 0}, 10, 0.0)[Lane("two", 1)].values == [
        b"1",
        b"3",
        b"5",
    ]
    assert [log.bounds(lane) for lane in log.lanes("two")] == [(0, 4), (0, 3)]
    log.close()
