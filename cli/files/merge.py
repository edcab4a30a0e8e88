"""The order in which events and their labels happen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from core.plain import BoolArray, IntArray, ObjectArray


@dataclass(frozen=True, slots=True)
class Labels:
    """Some labels: when each becomes known, which event it is of (its place among all events), and its
    id, its time as written, and its value."""

    at_ms: IntArray
    event: IntArray
    cells: ObjectArray  # [n, 3]

    def __len__(self) -> int:
        return len(self.at_ms)

    def take(self, rows: IntArray | BoolArray | slice) -> Labels:
        return Labels(self.at_ms[rows], self.event[rows], self.cells[rows])


class LabelMerger:
    """Puts labels between events, as River's `stream.simulate_qa` does: a label comes as soon as its time
    is not later than the next event's (at equal times the label first), after its own event, and labels
    that come together do so by time, then by event.

    Fed with events in time order, some at a time. Holds only the labels that have not come yet.
    """

    def __init__(self) -> None:
        self._waiting: list[Labels] = []  # each sorted by time, then event
        self._events = 0

    def push(self, ts_ms: IntArray, labels: Labels) -> tuple[BoolArray, Labels]:
        """The next events' times, and their labels (none earlier than its event). Returns the order of
        what happens up to the last of these events (False: the next event, True: the next label), and the
        labels that it speaks of."""
        start, stop = self._events, self._events + len(ts_ms)
        self._events = stop
        due: list[Labels] = []
        slots: list[IntArray] = []  # the event that a label comes right before
        kept: list[Labels] = []
        for run in self._waiting:
            n = int(np.searchsorted(run.at_ms, ts_ms[-1], side="right")) if len(ts_ms) else 0
            due.append(run.take(slice(0, n)))
            slots.append(start + np.searchsorted(ts_ms, due[-1].at_ms, side="left"))
            if n < len(run):
                kept.append(run.take(slice(n, None)))
        slot = np.maximum(labels.event + 1, start + np.searchsorted(ts_ms, labels.at_ms, side="left"))
        now = slot < stop
        due.append(labels.take(now))
        slots.append(slot[now])
        later = labels.take(~now)
        if len(later):
            kept.append(later.take(np.lexsort((later.event, later.at_ms))))
        self._waiting = kept
        coming, slot = _joined(due), np.concatenate(slots)
        ranks = np.lexsort((coming.event, coming.at_ms, slot))
        order = np.zeros(stop - start + len(ranks), np.bool_)
        order[slot[ranks] - start + np.arange(len(ranks))] = True
        return order, coming.take(ranks)

    def rest(self, size: int) -> Iterator[Labels]:
        """The labels that come after the last event, in order, `size` at a time."""
        if not self._waiting:
            return
        left = _joined(self._waiting)
        self._waiting = []
        ranks = np.lexsort((left.event, left.at_ms))
        for i in range(0, len(ranks), size):
            yield left.take(ranks[i : i + size])


def _joined(parts: list[Labels]) -> Labels:
    if len(parts) == 1:
        return parts[0]
    return Labels(
        np.concatenate([p.at_ms for p in parts]),
        np.concatenate([p.event for p in parts]),
        np.concatenate([p.cells for p in parts]),
    )
