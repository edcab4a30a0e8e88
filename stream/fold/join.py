"""Which label belongs to which event, however late, early or often either comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice, repeat
from typing import Any

import numpy as np

from core.config import JoinConfig
from core.plain import BoolArray, IntArray, State

_NEVER: int = np.iinfo(np.int64).min


class Join:
    """Matches by id. The first event of an id counts, and its first label; later ones are counted as
    duplicates (or, for a label that says otherwise, as conflicts) as long as the id is remembered.

    Bounded by age (record time) and by number: events without a label and labels without an event expire.
    What became of each record that did not make an example is in `counts`.
    """

    def __init__(self, config: JoinConfig) -> None:
        self._config = config
        self._waiting: dict[str, int] = {}  # event id -> slot
        self._early: dict[str, tuple[float, int]] = {}  # label id -> (label, ts)
        self._done: dict[str, float] = {}  # id -> label (NaN: it never came), oldest first
        self.watermark_ms = _NEVER
        self._swept_ms = _NEVER
        self.counts: Counter[str] = Counter()

    def waiting(self) -> int:
        """Events that wait for their label."""
        return len(self._waiting)

    def early(self) -> int:
        """Labels that wait for their event."""
        return len(self._early)

    def known(self, ids: list[str]) -> BoolArray | None:
        """Which of these events are duplicates (None: none of them)."""
        if (
            len(set(ids)) == len(ids)
            and self._waiting.keys().isdisjoint(ids)
            and self._done.keys().isdisjoint(ids)
        ):
            return None
        seen: set[str] = set()
        mask = np.zeros(len(ids), dtype=bool)
        for i, name in enumerate(ids):
            mask[i] = name in seen or name in self._waiting or name in self._done
            seen.add(name)
        self.counts["duplicate_event"] += int(mask.sum())
        return mask

    def first_time(self, ids: list[str]) -> BoolArray | None:
        """Which of these events, that wait for nothing, are new (None: all of them); all are done now."""
        fresh = dict.fromkeys(ids, np.nan)
        before = len(self._done)
        self._done.update(fresh)
        added = len(self._done) - before
        if added == len(ids):
            mask = None
        else:
            # A dict keeps its order: what was new to it stands at its end.
            new = set(islice(reversed(self._done), added))
            mask = np.zeros(len(ids), dtype=bool)
            for i, name in enumerate(ids):
                mask[i] = name in new
                new.discard(name)
            self.counts["duplicate_event"] += len(ids) - int(mask.sum())
        self._forget_oldest()
        return mask

    def finish(self, ids: Iterable[str], labels: Iterable[float]) -> None:
        """These ids are done: an event or a label that comes again is a duplicate."""
        self._done.update(zip(ids, labels, strict=True))
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Keeps the last `remember` ids, and up to as many again, so that it is seldom done."""
        n = len(self._done)
        if n > 2 * self._config.remember:
            self._done = dict(islice(self._done.items(), n - self._config.remember, None))

    def put(self, ids: list[str], slots: IntArray) -> None:
        """These events wait for their labels."""
        self._waiting.update(zip(ids, slots.tolist(), strict=True))

    def take(self, name: str, label: float) -> None:
        """This event waits no longer: its label had come before it."""
        self._waiting.pop(name, None)
        self._done[name] = label

    def early_labels(self, ids: list[str]) -> list[tuple[int, float, int]]:
        """(row, label, ts) of these events' labels that came before them; they wait no longer."""
        if not self._early or self._early.keys().isdisjoint(ids):
            return []
        return [(i, *self._early.pop(name)) for i, name in enumerate(ids) if name in self._early]

    def match(self, ids: list[str], labels: np.ndarray[Any, Any], ts_ms: IntArray) -> IntArray:
        """The slot of each label's event, which then waits no longer; -1 where there is none: then the
        label is a duplicate, or waits for its event."""
        found = list(map(self._waiting.pop, ids, repeat(-1)))
        slots = np.array(found, dtype=np.int64)
        if -1 in found:
            taken = {ids[i]: float(labels[i]) for i in np.flatnonzero(slots >= 0).tolist()}
            for i in np.flatnonzero(slots < 0).tolist():
                self._unmatched(ids[i], float(labels[i]), int(ts_ms[i]), taken)
        return slots

    def _unmatched(self, name: str, label: float, ts_ms: int, taken: dict[str, float]) -> None:
        first = taken.get(name)
        if first is None and name in self._early:
            first = self._early[name][0]
        if first is None:
            first = self._done.get(name)
        if first is None:
            self._early[name] = (label, ts_ms)
        elif np.isnan(first):
            self.counts["late_label"] += 1
        else:
            self.counts["duplicate_label" if first == label else "conflicting_label"] += 1

    def too_late(self, event_ts_ms: IntArray, label_ts_ms: IntArray) -> BoolArray:
        """Which labels came more than `expire_after` after their event."""
        return label_ts_ms - event_ts_ms > self._config.expire_after

    def believable(self, ts_ms: IntArray, now_ms: int) -> IntArray:
        """The times that are not too far ahead of the clock."""
        return ts_ms[ts_ms <= now_ms + self._config.max_ahead]

    def advance(self, ts_ms: IntArray, now_ms: int) -> bool:
        """Moves the watermark to the newest of these record times that is believable. True where enough
        time went by to look for what expired."""
        self.watermark_ms = int(self.believable(ts_ms, now_ms).max(initial=self.watermark_ms))
        full = len(self._waiting) > self._config.capacity or len(self._early) > self._config.capacity
        if self._swept_ms == _NEVER:
            self._swept_ms = self.watermark_ms
        due = self.watermark_ms - self._swept_ms > self._config.expire_after // 16
        if due or full:
            self._swept_ms = self.watermark_ms
        return due or full

    def expire(self, ts_ms: IntArray) -> IntArray:
        """The slots of events that waited too long, or are the oldest of too many, in order of arrival;
        they wait no longer. Early labels go by the same rules. `ts_ms` is every slot's event time."""
        limit = self.watermark_ms - self._config.expire_after
        slots = np.fromiter(self._waiting.values(), np.int64, len(self._waiting))
        gone = ts_ms[slots] < limit
        surplus = _surplus(len(slots) - int(gone.sum()), self._config.capacity)
        self.counts["expired_event"] += int(gone.sum())
        self.counts["evicted_event"] += surplus
        gone[np.flatnonzero(~gone)[:surplus]] = True
        if gone.any():
            names = list(self._waiting)
            for i in np.flatnonzero(gone).tolist():
                del self._waiting[names[i]]
            self._waiting = dict(self._waiting)  # a dict with many holes at its front is slow to walk
        self._expire_labels(limit)
        return slots[gone]

    def _expire_labels(self, limit: int) -> None:
        kept = {name: row for name, row in self._early.items() if row[1] >= limit}
        self.counts["expired_label"] += len(self._early) - len(kept)
        surplus = _surplus(len(kept), self._config.capacity)
        self.counts["evicted_label"] += surplus
        self._early = dict(list(kept.items())[surplus:])

    def forget(self, name: str) -> int:
        """Everything about this id; its event's slot, or -1."""
        if self._early.pop(name, None) is not None:
            self.counts["forgotten_label"] += 1
        self._done.pop(name, None)
        slot = self._waiting.pop(name, -1)
        if slot >= 0:
            self.counts["forgotten_event"] += 1
        return slot

    def state(self, slot_order: dict[int, int]) -> State:
        """Plain data; slots are written as places in the order of arrival."""
        return {
            "waiting": [list(self._waiting), [slot_order[s] for s in self._waiting.values()]],
            "early": [
                list(self._early),
                np.array([label for label, _ in self._early.values()], dtype=np.float64),
                np.array([ts for _, ts in self._early.values()], dtype=np.int64),
            ],
            "done": [list(self._done), np.array(list(self._done.values()), dtype=np.float64)],
            "watermark_ms": int(self.watermark_ms),
            "swept_ms": int(self._swept_ms),
            "counts": dict(sorted(self.counts.items())),
        }

    @classmethod
    def from_state(cls, config: JoinConfig, state: State) -> Join:
        join = cls(config)
        join._waiting = dict(zip(*state["waiting"], strict=True))
        names, labels, times = state["early"]
        join._early = dict(zip(names, zip(labels.tolist(), times.tolist(), strict=True), strict=True))
        ids, values = state["done"]
        join._done = dict(zip(ids, values.tolist(), strict=True))
        join.watermark_ms = state["watermark_ms"]
        join._swept_ms = state["swept_ms"]
        join.counts = Counter(state["counts"])
        return join


def _surplus(n: int, capacity: int) -> int:
    """How many of the oldest must go; some room is made at once, so that not every turn must."""
    return n - (capacity - capacity // 16) if n > capacity else 0
