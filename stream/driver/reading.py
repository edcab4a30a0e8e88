"""Reads and decodes a model's lanes, kept together by record time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from core.config import ModelConfig
from core.errors import RiverrunError
from core.plain import IntArray
from core.records import Lane, PlainRecords, Records
from stream.codec.decoder import RecordDecoder
from stream.fold.inputs import LaneInput
from stream.log.log import Log

_MUCH = 256  # so many records at once say that more wait
_MOST_HOLDS = 100
_NONE: IntArray = np.empty(0, dtype=np.int64)


class LaneReader:
    """Reads what comes next in all lanes of a model's topics, and decodes it."""

    def __init__(self, log: Log, config: ModelConfig, limit: int) -> None:
        self._log = log
        self._limit = limit
        self._labels_topic = config.labels
        self._events = RecordDecoder(config, events=True)
        self._labels = None if config.labels is None else RecordDecoder(config, events=False)
        self._held: dict[Lane, Records] = {}
        self._holds = 0  # calls in a row in which some lane gave nothing of what it had

    def read(self, start: Mapping[Lane, int], wait_s: float) -> dict[Lane, LaneInput]:
        """At most `limit` records a lane from `start` on; empty where nothing came in `wait_s`.

        No lane runs ahead of the others in record time: what was read beyond is held for the next call,
        which must go on where this one ended.
        """
        got, self._held = self._held, {}
        want = {
            lane: got[lane].next_offset if lane in got else offset
            for lane, offset in start.items()
            if lane not in got or len(got[lane]) < self._limit
        }
        if want:
            for lane, records in self._log.read(want, self._limit, 0.0 if got else wait_s).items():
                got[lane] = got[lane].then(records) if lane in got else records
        if len(start) > 1:
            self._wait_for_stragglers(start, got)
            got = self._level(got)
        return {lane: self.decode(lane, records) for lane, records in got.items()}

    def exactly(self, ranges: Mapping[Lane, tuple[int, int]], timeout_s: float) -> dict[Lane, LaneInput]:
        """The records in these ranges, as a journaled turn names them. Raises RiverrunError where the log
        does not give them in `timeout_s`."""
        return {lane: self.decode(lane, self._range(lane, *span, timeout_s)) for lane, span in ranges.items()}

    def decode(self, lane: Lane, records: Records) -> LaneInput:
        """What these records of the lane say."""
        if self._labels is not None and lane.topic == self._labels_topic:
            return LaneInput(lane, records, self._labels.decode(records, lane.partition), True)
        return LaneInput(lane, records, self._events.decode(records, lane.partition), False)

    def _range(self, lane: Lane, start: int, stop: int, timeout_s: float) -> Records:
        found: Records | None = None
        at = start
        while at < stop:
            records = self._log.read({lane: at}, self._limit, timeout_s).get(lane)
            if records is None:
                raise RiverrunError(
                    f"{lane}: the log gives nothing from offset {at} on; {stop} was read before"
                )
            n = int(np.searchsorted(records.offsets, stop))
            if n:
                found = records.upto(n) if found is None else found.then(records.upto(n))
            at = records.next_offset
        if found is None:  # compaction may take every record of a range
            return PlainRecords(_NONE, [], _NONE, [], stop)
        return found

    def _wait_for_stragglers(self, start: Mapping[Lane, int], got: dict[Lane, Records]) -> None:
        """Where one lane has much to give, a lane that gave nothing may only be slow to come."""
        if not any(len(records) >= _MUCH for records in got.values()):
            return
        for lane, offset in start.items():
            if lane not in got and self._log.bounds(lane)[1] > offset:
                got.update(self._log.read({lane: offset}, self._limit, 0.2))

    def _level(self, got: dict[Lane, Records]) -> dict[Lane, Records]:
        """All up to the time that every lane has reached; what is beyond waits for the next call, which
        comes at once. So a lane without news holds nobody up, and one whose records are dated long ago
        does so for a while only."""
        if len(got) < 2:
            self._holds = 0
            return got
        reached = {lane: np.maximum.accumulate(records.timestamps_ms) for lane, records in got.items()}
        horizon = min(int(times[min(self._limit, len(times)) - 1]) for times in reached.values())
        level: dict[Lane, Records] = {}
        held: dict[Lane, Records] = {}
        for lane, records in got.items():
            n = int(np.searchsorted(reached[lane], horizon, side="right"))
            if n:
                level[lane] = records.upto(n)
            if n < len(records):
                held[lane] = records.after(n)
        whole = any(lane not in level for lane in held)
        self._holds = self._holds + 1 if whole else 0
        if self._holds > _MOST_HOLDS:
            self._holds = 0
            return got
        self._held = held
        return level
