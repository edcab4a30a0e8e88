"""The log on Redis Streams: one stream a lane."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, cast
from urllib.parse import urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from core.clock import Clock, SystemClock
from core.errors import ConfigError, LogUnavailable, OffsetOutOfRange, UnknownTopic
from core.records import Lane, OutRecord, Records
from stream.log.redis_entries import MAX_ENTRY_RECORDS, Entry, cut, entry_id, pack, records_of, unpack
from stream.log.redis_errors import as_log_errors
from stream.log.topics import MAX_RECORD_BYTES, check_sizes, check_topic, out_of_range, spread

TOPICS = "riverrun:log:topics"  # hash: topic -> number of partitions
SOCKET_TIMEOUT_S = 5.0
BLOCK_S = 1.0  # a longer wait is made of several, so that the socket's timeout stays short
FETCH_BYTES = 8 * 1024 * 1024  # of one lane in one read, as far as known beforehand
VERIFY_S = 2.0  # how often an idle reader checks that its position still exists
_RACES = 1_000


def stream_key(lane: Lane) -> str:
    """The lane's stream; the braces keep a topic's lanes together on a cluster."""
    return f"riverrun:log:{{{lane.topic}}}:{lane.partition}"


class _Cursor:
    """Where a reader stands in a lane: `offset` is next to be handed out, of the entries at hand first;
    `fetched` is next to be asked for."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.fetched = offset
        self.at_hand: list[Entry] = []
        self.count = 16  # entries to ask for: adapts to their size

    def add(self, entries: Sequence[Entry]) -> None:
        self.at_hand.extend(entries)
        self.fetched = entries[-1].following

    def waiting(self) -> int:
        return sum(len(entry.values) for entry in self.at_hand)

    def room(self, limit: int) -> int:
        """How many more entries to ask for, by the size of those at hand."""
        if not self.at_hand:
            return self.count
        n = len(self.at_hand)
        records_left = limit - self.waiting()
        bytes_left = FETCH_BYTES - sum(entry.size for entry in self.at_hand)
        if records_left <= 0 or bytes_left <= 0:
            return 0
        by_records = records_left * n // max(1, self.waiting()) + 1
        by_bytes = bytes_left * n // max(1, sum(entry.size for entry in self.at_hand)) + 1
        self.count = min(by_records, by_bytes, 1024)
        return self.count

    def take(self, limit: int) -> Records | None:
        taken: list[Entry] = []
        left = limit
        while self.at_hand and left > 0:
            entry = self.at_hand[0]
            if len(entry.values) > left:
                taken.append(entry.rows(0, left))
                self.at_hand[0] = entry.rows(left, len(entry.values))
                break
            taken.append(entry)
            left -= len(entry.values)
            del self.at_hand[0]
        if not taken:
            return None
        records = records_of(taken)
        self.offset = records.next_offset
        return records


class RedisLog:
    """Topics as Redis streams, packed many records to an entry.

    Appenders of many processes may share a lane: an entry's id says the offset it begins at, and Redis
    takes only growing ids, so of two appenders that chose the same offset one is refused, looks again
    and retries. An append whose process dies before Redis answered may or may not be there: at least once.

    A key's lane is its CRC-32 modulo the number of lanes. `retention_records` (None: all) keeps at least
    the newest so many of each lane. `client_options` go to `redis.Redis.from_url`.
    """

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        retention_records: int | None = None,
        max_record_bytes: int = MAX_RECORD_BYTES,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._clock = clock or SystemClock()
        self._retention = retention_records
        self._max_record_bytes = max_record_bytes
        settings: dict[str, Any] = {
            "socket_timeout": SOCKET_TIMEOUT_S,
            "socket_connect_timeout": SOCKET_TIMEOUT_S,
            "retry": Retry(ExponentialBackoff(cap=0.2, base=0.02), 2),
            "retry_on_error": [redis.ConnectionError, redis.TimeoutError],
        } | dict(client_options or {})
        try:
            self._client = redis.Redis.from_url(url, **settings)
            self._client.connection_pool.make_connection()  # looks at the settings; connects to nothing
        except (TypeError, ValueError) as error:
            raise ConfigError(f"log: Redis at {self._where} cannot be set up so: {error}") from None
        self._partitions: dict[str, int] = {}
        self._cursors: dict[Lane, _Cursor] = {}
        self._verified_s = monotonic()
        self._ends: dict[Lane, int] = {}
        self._locks: dict[Lane, threading.Lock] = {}
        self._guard = threading.Lock()
        self._turn = 0

    def lanes(self, topic: str) -> Sequence[Lane]:
        with as_log_errors(self._where):
            self._partitions.pop(topic, None)
            return [Lane(topic, partition) for partition in range(self._count(topic))]

    def create(self, topic: str, partitions: int = 1) -> None:
        check_topic(topic, partitions)
        with as_log_errors(self._where):
            self._client.hsetnx(TOPICS, topic, str(partitions))

    def append(self, topic: str, records: Sequence[OutRecord]) -> None:
        with as_log_errors(self._where):
            partitions = self._count(topic)
            check_sizes(topic, records, self._max_record_bytes, "max_record_bytes")
            self._turn += 1
            for partition, rows in spread(topic, records, partitions, self._turn % partitions).items():
                lane = Lane(topic, partition)
                with self._lock(lane):
                    for group in cut(records, rows):
                        self._add(lane, group)

    def bounds(self, lane: Lane) -> tuple[int, int]:
        with as_log_errors(self._where):
            self._check_lane(lane)
            return self._bounds([lane])[lane]

    def close(self) -> None:
        self._client.close()

    # -- reading

    def read(self, start: Mapping[Lane, int], limit: int, wait_s: float) -> Mapping[Lane, Records]:
        deadline = monotonic() + wait_s
        if limit <= 0:
            return {}
        try:
            with as_log_errors(self._where):
                cursors = {lane: self._cursor(lane, offset) for lane, offset in start.items()}
                while True:
                    self._fetch(cursors, limit)
                    found = {lane: cursor.take(limit) for lane, cursor in cursors.items()}
                    left = deadline - monotonic()
                    if left <= 0 or any(found.values()):
                        return {lane: records for lane, records in found.items() if records is not None}
                    self._wait(cursors, min(left, BLOCK_S))
        except Exception:
            self._cursors.clear()  # whatever happened, the next read looks again
            raise

    def _cursor(self, lane: Lane, offset: int) -> _Cursor:
        cursor = self._cursors.get(lane)
        if cursor is None or cursor.offset != offset:
            cursor = self._cursors[lane] = self._seek(lane, offset)
        return cursor

    def _seek(self, lane: Lane, offset: int) -> _Cursor:
        self._check_lane(lane)
        oldest, following = self._bounds([lane])[lane]
        if not oldest <= offset <= following:
            raise OffsetOutOfRange(out_of_range(lane, offset, oldest, following))
        cursor = _Cursor(offset)
        key = stream_key(lane)
        for entry in self._entries(key, self._client.xrevrange(key, entry_id(offset), "-", 1)):
            if entry.first <= offset < entry.following:
                cursor.add([entry.rows(offset - entry.first, len(entry.values))])
        return cursor

    def _fetch(self, cursors: Mapping[Lane, _Cursor], limit: int) -> None:
        """What the streams have beyond the cursors, about `limit` records a lane."""
        hungry = dict(cursors)
        while hungry:
            asked = {lane: room for lane, cursor in hungry.items() if (room := cursor.room(limit)) > 0}
            if not asked:
                return
            pipeline = self._client.pipeline(transaction=False)
            for lane, count in asked.items():
                pipeline.xrange(stream_key(lane), entry_id(cursors[lane].fetched), "+", count)
            for (lane, count), raw in zip(asked.items(), pipeline.execute(), strict=True):
                self._absorb(lane, cursors[lane], raw)
                if len(raw) < count:
                    del hungry[lane]
            hungry = {lane: cursor for lane, cursor in hungry.items() if lane in asked}

    def _absorb(self, lane: Lane, cursor: _Cursor, raw: Iterable[Any]) -> None:
        entries = self._entries(stream_key(lane), raw)
        if not entries:
            return
        if entries[0].first > cursor.fetched:  # a gap, or what was there is no longer kept
            oldest, following = self._bounds([lane])[lane]
            if cursor.fetched < oldest:
                raise OffsetOutOfRange(out_of_range(lane, cursor.fetched, oldest, following))
        cursor.add(entries)

    def _wait(self, cursors: Mapping[Lane, _Cursor], wait_s: float) -> None:
        """Returns when some lane has records, or after `wait_s`."""
        if monotonic() - self._verified_s > VERIFY_S:
            self._verified_s = monotonic()
            for lane, (oldest, following) in self._bounds(list(cursors)).items():
                if cursors[lane].fetched > following:  # the server lost what it had
                    raise OffsetOutOfRange(out_of_range(lane, cursors[lane].fetched, oldest, following))
        streams = {stream_key(lane): f"{cursor.fetched}-0" for lane, cursor in cursors.items()}
        if not streams:
            threading.Event().wait(wait_s)
            return
        # the records themselves come with the next fetch, which also takes what arrived meanwhile
        self._client.xread(cast(Any, streams), count=1, block=max(1, int(wait_s * 1000)))

    # -- appending

    def _add(self, lane: Lane, group: Sequence[OutRecord]) -> None:
        """One entry at the lane's end, wherever that is by now."""
        key = stream_key(lane)
        fields: Any = {b"r": pack(group, self._clock.now_ms()), b"t": secrets.token_bytes(8)}
        for _ in range(_RACES):
            first = self._ends.get(lane)
            if first is None:
                first = self._bounds([lane])[lane][1]
            keep: dict[str, Any] = {}
            if self._retention is not None:
                oldest = first + len(group) - self._retention - MAX_ENTRY_RECORDS
                if oldest > 0:
                    keep = {"minid": entry_id(oldest), "approximate": False}
            try:
                self._client.xadd(key, fields, id=entry_id(first), **keep)
            except redis.ResponseError as error:
                if "equal or smaller" not in str(error):
                    raise
                self._ends.pop(lane, None)
                # refused: someone else was first, or we were and the answer got lost on its way
                there: Any = self._client.xrange(key, entry_id(first), entry_id(first), 1)
                if not (there and there[0][1].get(b"t") == fields[b"t"]):
                    continue
            self._ends[lane] = first + len(group)
            return
        raise LogUnavailable(f"Redis at {self._where}: other appenders to {lane} were always first")

    # -- what is there

    def _count(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            stored: Any = self._client.hget(TOPICS, topic)
            if stored is None:
                raise UnknownTopic(f"topic {topic} does not exist in Redis at {self._where}")
            count = self._partitions[topic] = int(stored)
        return count

    def _check_lane(self, lane: Lane) -> None:
        count = self._count(lane.topic)
        if not 0 <= lane.partition < count:
            raise UnknownTopic(f"topic {lane.topic} has partitions 0 to {count - 1}, not {lane.partition}")

    def _bounds(self, lanes: Sequence[Lane]) -> dict[Lane, tuple[int, int]]:
        pipeline = self._client.pipeline(transaction=True)
        for lane in lanes:
            pipeline.xrange(stream_key(lane), "-", "+", 1)
            pipeline.xrevrange(stream_key(lane), "+", "-", 1)
        answers = pipeline.execute()
        found: dict[Lane, tuple[int, int]] = {}
        for index, lane in enumerate(lanes):
            key = stream_key(lane)
            first = self._entries(key, answers[2 * index])
            last = self._entries(key, answers[2 * index + 1])
            found[lane] = (first[0].first, last[0].following) if first and last else (0, 0)
        return found

    def _entries(self, key: str, raw: Any) -> list[Entry]:
        return [unpack(key, raw_id, fields[b"r"]) for raw_id, fields in raw]

    def _lock(self, lane: Lane) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(lane, threading.Lock())
