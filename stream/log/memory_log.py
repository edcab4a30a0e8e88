"""The log in memory: for tests and for work within one process."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping, Sequence
from time import monotonic

import numpy as np

from core.clock import Clock, SystemClock
from core.errors import OffsetOutOfRange, UnknownTopic
from core.records import Headers, Lane, OutRecord, PlainRecords, Records
from stream.log.topics import MAX_RECORD_BYTES, check_sizes, check_topic, out_of_range, spread


class _LaneRecords:
    """One lane's columns; `oldest` is the offset of the first row."""

    def __init__(self) -> None:
        self.oldest = 0
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.stamps = array("q")

    @property
    def following(self) -> int:
        return self.oldest + len(self.values)

    def read(self, start: int, limit: int) -> PlainRecords:
        first = start - self.oldest
        rows = slice(first, first + limit)
        values = self.values[rows]
        headers = self.headers[rows]
        return PlainRecords(
            np.arange(start, start + len(values), dtype=np.int64),
            values,
            np.array(self.stamps[rows], dtype=np.int64),
            self.keys[rows],
            start + len(values),
            headers if any(headers) else (),
        )

    def trim(self, keep: int) -> None:
        extra = len(self.values) - keep
        if extra > 0:
            self.oldest += extra
            del self.values[:extra], self.keys[:extra], self.headers[:extra], self.stamps[:extra]


class MemoryLog:
    """A log that lives as long as this object; hand the object itself to whoever shares it.

    Each lane keeps its newest `retention_records` (None: all). Any number of threads may read and append.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        retention_records: int | None = None,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._clock = clock or SystemClock()
        self._retention = retention_records
        self._max_record_bytes = max_record_bytes
        self._topics: dict[str, list[_LaneRecords]] = {}
        self._changed = threading.Condition()
        self._turn = 0  # keyless records of one append stay together; the next append's go one lane on

    def lanes(self, topic: str) -> Sequence[Lane]:
        with self._changed:
            return [Lane(topic, partition) for partition in range(len(self._topic(topic)))]

    def create(self, topic: str, partitions: int = 1) -> None:
        check_topic(topic, partitions)
        with self._changed:
            self._topics.setdefault(topic, [_LaneRecords() for _ in range(partitions)])

    def read(self, start: Mapping[Lane, int], limit: int, wait_s: float) -> Mapping[Lane, Records]:
        deadline = monotonic() + wait_s
        with self._changed:
            while True:
                found: dict[Lane, Records] = {}
                for lane, offset in start.items():
                    records = self._lane(lane)
                    if not records.oldest <= offset <= records.following:
                        raise OffsetOutOfRange(out_of_range(lane, offset, records.oldest, records.following))
                    if offset < records.following and limit > 0:
                        found[lane] = records.read(offset, limit)
                left = deadline - monotonic()
                if found or left <= 0:
                    return found
                self._changed.wait(left)

    def append(self, topic: str, records: Sequence[OutRecord]) -> None:
        with self._changed:
            lanes = self._topic(topic)
            check_sizes(topic, records, self._max_record_bytes, "max_record_bytes")
            now_ms = self._clock.now_ms()
            self._turn += 1
            for partition, rows in spread(topic, records, len(lanes), self._turn % len(lanes)).items():
                kept = lanes[partition]
                for row in rows:
                    record = records[row]
                    kept.values.append(record.value)
                    kept.keys.append(record.key)
                    kept.headers.append(tuple(record.headers))
                    kept.stamps.append(now_ms if record.timestamp_ms is None else record.timestamp_ms)
                if self._retention is not None:
                    kept.trim(self._retention)
            self._changed.notify_all()

    def bounds(self, lane: Lane) -> tuple[int, int]:
        with self._changed:
            records = self._lane(lane)
            return records.oldest, records.following

    def close(self) -> None:
        """Nothing to end: the records stay for as long as the object does."""

    def _topic(self, topic: str) -> list[_LaneRecords]:
        lanes = self._topics.get(topic)
        if lanes is None:
            raise UnknownTopic(f"topic {topic} does not exist in this log")
        return lanes

    def _lane(self, lane: Lane) -> _LaneRecords:
        lanes = self._topic(lane.topic)
        if not 0 <= lane.partition < len(lanes):
            raise UnknownTopic(
                f"topic {lane.topic} has partitions 0 to {len(lanes) - 1}, not {lane.partition}"
            )
        return lanes[lane.partition]
