"""Events that wait, as columns: for their label, or for their window to close."""

from __future__ import annotations

import numpy as np

from core.batch import Batch
from core.plain import FloatArray, IntArray, ObjectArray, State


class Pending:
    """Rows in slots. A row holds an event as it was when it arrived: features, every lineage's scores
    for it, and the baselines' answers; later its label. Slots are reused; `sequence` tells who came first.
    """

    def __init__(self, n_numeric: int, n_objects: int) -> None:
        self.ids: ObjectArray = np.empty(0, dtype=object)
        self.ts_ms: IntArray = np.empty(0, dtype=np.int64)
        self.sequence: IntArray = np.empty(0, dtype=np.int64)  # -1: a free slot
        self.X: FloatArray = np.empty((0, n_numeric))
        self.objects: ObjectArray = np.empty((0, n_objects), dtype=object)
        self.no_change: FloatArray = np.empty(0)
        self.usual: FloatArray = np.empty(0)
        self.y: FloatArray = np.empty(0)
        self.came_at: IntArray = np.empty(0, dtype=np.int64)  # place in the turn under way; -1: before it
        self.scores: dict[str, FloatArray] = {}  # lineage -> [slots, width]; NaN: it was not there yet
        self._free: IntArray = np.empty(0, dtype=np.int64)  # a stack of `_n_free` slots
        self._n_free = 0
        self._next = 0

    def __len__(self) -> int:
        return len(self.ids) - self._n_free

    def put(self, events: Batch) -> IntArray:
        """Slots for these rows, in order. What the baselines say is set by the caller."""
        n = len(events)
        if self._n_free < n:
            self._grow(n - self._n_free)
        slots = self._free[self._n_free - n : self._n_free][::-1].copy()
        self._n_free -= n
        self.ids[slots] = events.ids
        self.ts_ms[slots] = events.ts_ms
        self.X[slots] = events.X
        self.objects[slots] = events.objects
        self.no_change[slots] = np.nan
        self.usual[slots] = np.nan
        self.y[slots] = np.nan
        self.sequence[slots] = np.arange(self._next, self._next + n)
        self._next += n
        for scores in self.scores.values():
            scores[slots] = np.nan
        return slots

    def set_scores(self, lineage: str, slots: IntArray, scores: FloatArray) -> None:
        """What the lineage said about these rows. A class that came up since has score 0 in older rows."""
        if scores.shape[1] == 0:  # no class known yet; that something was said must show nevertheless
            scores = np.zeros((len(scores), 1))
        width = scores.shape[1]
        held = self.scores.get(lineage)
        if held is None:
            held = self.scores[lineage] = np.full((len(self.ids), width), np.nan)
        elif held.shape[1] < width:
            wider = np.zeros((len(self.ids), width))
            wider[:, : held.shape[1]] = held
            wider[np.isnan(held[:, 0])] = np.nan
            held = self.scores[lineage] = wider
        held[slots] = scores

    def get_scores(self, lineage: str, slots: IntArray, width: int) -> FloatArray:
        """[rows, width]; rows of NaN where the lineage was not there when the event came."""
        held = self.scores.get(lineage)
        found = np.full((len(slots), width), np.nan)
        if held is not None:
            rows = held[slots]
            found[:, : held.shape[1]] = rows
            found[~np.isnan(rows[:, 0]), held.shape[1] :] = 0.0
        return found

    def drop_lineage(self, lineage: str) -> None:
        """Forgets what this lineage said."""
        self.scores.pop(lineage, None)

    def examples(self, slots: IntArray, y: IntArray | FloatArray, n_classes: int) -> Batch:
        """The rows with their labels, in this order."""
        return Batch(self.ids[slots], self.ts_ms[slots], self.X[slots], self.objects[slots], y, n_classes)

    def release(self, slots: IntArray) -> None:
        """Frees the slots."""
        self.sequence[slots] = -1
        self.ids[slots] = None
        self.objects[slots] = None
        self._give_back(slots[::-1])

    def live(self) -> IntArray:
        """The slots in use, in order of arrival."""
        slots = np.flatnonzero(self.sequence >= 0)
        return slots[np.argsort(self.sequence[slots])]

    def _grow(self, need: int) -> None:
        old = len(self.ids)
        new = max(2 * old, old + need, 1024)
        for name in ("ids", "ts_ms", "sequence", "X", "objects", "no_change", "usual", "y", "came_at"):
            setattr(self, name, _longer(getattr(self, name), new))
        self.sequence[old:] = -1
        self.came_at[old:] = -1
        for lineage, scores in self.scores.items():
            longer = _longer(scores, new)
            longer[old:] = np.nan
            self.scores[lineage] = longer
        self._free = _longer(self._free, new)
        self._give_back(np.arange(new - 1, old - 1, -1))

    def _give_back(self, slots: IntArray) -> None:
        self._free[self._n_free : self._n_free + len(slots)] = slots
        self._n_free += len(slots)

    def state(self) -> State:
        """The rows in use, in order of arrival; `from_state` gives them the slots 0, 1, …"""
        slots = self.live()
        return {
            "ids": self.ids[slots].tolist(),
            "ts_ms": self.ts_ms[slots],
            "X": self.X[slots],
            "objects": [self.objects[slots, j].tolist() for j in range(self.objects.shape[1])],
            "no_change": self.no_change[slots],
            "usual": self.usual[slots],
            "y": self.y[slots],
            "scores": {name: scores[slots] for name, scores in self.scores.items()},
        }

    @classmethod
    def from_state(cls, state: State) -> Pending:
        n = len(state["ids"])
        pending = cls(state["X"].shape[1], len(state["objects"]))
        if n == 0:
            pending.scores = {name: scores.copy() for name, scores in state["scores"].items()}
            return pending
        rows = Batch(
            np.array(state["ids"], dtype=object),
            state["ts_ms"],
            state["X"],
            _object_matrix(state["objects"], n),
        )
        slots = pending.put(rows)
        pending.no_change[slots], pending.usual[slots] = state["no_change"], state["usual"]
        pending.y[slots] = state["y"]
        for name, scores in state["scores"].items():
            pending.set_scores(name, slots, scores)
        return pending


def _longer(array: np.ndarray, n: int) -> np.ndarray:
    longer = np.empty((n, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _object_matrix(columns: list[list[object]], n: int) -> ObjectArray:
    matrix = np.empty((n, len(columns)), dtype=object)
    for j, column in enumerate(columns):
        for i, value in enumerate(column):  # a dict or a list must stay one value
            matrix[i, j] = value
    return matrix
