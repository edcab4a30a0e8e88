"""Rows in columns that grow to a capacity: what every buffer keeps its sample in."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from core.batch import Batch
from core.plain import BoolArray, FloatArray, IntArray, ObjectArray, State, objects

_EMPTY: State = {
    "ids": [],
    "ts_ms": np.empty(0, np.int64),
    "X": np.empty((0, 0)),
    "objects": [],
    "y": np.empty(0),
}


class Rows:
    """Labelled rows at places 0 … capacity-1. Memory grows with the rows kept, by doubling."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.n_classes = 0
        self._room = 0
        self._ids: ObjectArray = np.empty(0, object)
        self._ts_ms: IntArray = np.empty(0, np.int64)
        self._X: FloatArray = np.empty((0, 0))
        self._objects: ObjectArray = np.empty((0, 0), object)
        self._y: IntArray | FloatArray = np.empty(0)

    def put(self, places: IntArray, batch: Batch, rows: IntArray) -> None:
        """Writes these rows of a labelled batch at these places, all different and below the capacity."""
        if batch.y is None:
            raise ValueError(f"a replay buffer keeps labelled rows; {len(batch)} rows came without labels")
        self.n_classes = max(self.n_classes, batch.n_classes)
        if not len(places):
            return
        self._reserve(int(places.max()) + 1, batch.X.shape[1], batch.objects.shape[1], batch.y.dtype)
        self._ids[places] = batch.ids[rows]
        self._ts_ms[places] = batch.ts_ms[rows]
        self._X[places] = batch.X[rows]
        self._objects[places] = batch.objects[rows]
        self._y[places] = batch.y[rows]

    def _reserve(self, size: int, numeric: int, other: int, label: np.dtype[np.generic]) -> None:
        if size <= self._room:
            return
        room = min(self.capacity, max(size, 2 * self._room, 64))
        old = self._room
        ids, ts_ms, X, kept, y = self._ids, self._ts_ms, self._X, self._objects, self._y
        self._ids = np.empty(room, object)
        self._ts_ms = np.empty(room, np.int64)
        self._X = np.empty((room, numeric))
        self._objects = np.empty((room, other), object)
        self._y = np.empty(room, label)
        if old:
            self._ids[:old], self._ts_ms[:old], self._X[:old] = ids, ts_ms, X
            self._objects[:old], self._y[:old] = kept, y
        self._room = room

    def take(self, places: IntArray) -> Batch:
        """The rows at these places, copied, in this order."""
        return Batch(
            self._ids[places],
            self._ts_ms[places],
            self._X[places],
            self._objects[places],
            self._y[places],
            self.n_classes,
        )

    def of(self, ids: Collection[str], places: IntArray) -> BoolArray:
        """Which of the rows at these places have one of the ids."""
        wanted = ids if isinstance(ids, set | frozenset) else set(ids)
        return np.fromiter((i in wanted for i in self._ids[places]), np.bool_, len(places))

    def arrange(self, places: IntArray) -> None:
        """Moves the rows at these places to 0, 1, …; lets go of all others."""
        n = len(places)
        for column in (self._ids, self._ts_ms, self._X, self._objects, self._y):
            column[:n] = column[places]
        self._ids[n:] = None
        self._objects[n:] = None

    def state(self, places: IntArray) -> State:
        """The rows at these places as plain data; object columns as lists. No rows have no shape either,
        however many there once were, so that what is restored from them has the same bytes."""
        if not len(places):
            return {"n_classes": self.n_classes} | _EMPTY
        kept = self._objects[places]
        return {
            "n_classes": self.n_classes,
            "ids": list(self._ids[places]),
            "ts_ms": self._ts_ms[places],
            "X": self._X[places],
            "objects": [list(kept[:, i]) for i in range(kept.shape[1])],
            "y": self._y[places],
        }

    def restore(self, state: State) -> int:
        """Puts the rows of a state at 0, 1, …; returns how many there are."""
        ids, columns = state["ids"], state["objects"]
        n = len(ids)
        kept = np.empty((n, len(columns)), object)
        for i, column in enumerate(columns):
            kept[:, i] = objects(list(column))
        X = np.asarray(state["X"], np.float64).reshape(n, -1) if n else np.empty((0, 0))
        batch = Batch(objects(list(ids)), np.asarray(state["ts_ms"]), X, kept, np.asarray(state["y"]))
        everything = np.arange(n, dtype=np.int64)
        self.put(everything, batch, everything)
        self.n_classes = int(state["n_classes"])
        return n
