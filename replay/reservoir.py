"""A uniform sample of everything seen."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.random import Generator

from core.batch import Batch
from core.plain import IntArray, State
from replay.rows import Rows


class Reservoir:
    """Every row offered so far has the same chance to be in the sample of `capacity` rows, as with
    Vitter's algorithm R (1985, "Random sampling with a reservoir"), in the form that survives deletions:
    each row draws a uniform number when it comes, and the rows with the smallest numbers stay (bottom-k
    sampling; Cohen & Kaplan 2007, "Summarizing data using bottom-k sketches").

    `limit` is the smallest number that was ever turned away: the sample is exactly the rows below it that
    are not forgotten, so it stays uniform over the rest, and places freed by `forget` fill again at the
    rate at which rows are taken anyway.

    Offering rows in one batch or in several leaves the very same sample, from the same generator.
    """

    policy = "reservoir"

    def __init__(self, capacity: int, state: State | None = None) -> None:
        if capacity < 0:
            raise ValueError(f"capacity: 0 or more, not {capacity}")
        self.capacity = capacity
        self._rows = Rows(capacity)
        self._size = 0
        self._limit = 1.0
        self._seen = 0
        self._draws = np.empty(capacity)
        self._arrivals = np.empty(capacity, np.int64)
        if state is not None:
            self._restore(state)

    def __len__(self) -> int:
        return self._size

    @property
    def seen(self) -> int:
        """How many rows were offered."""
        return self._seen

    def add(self, batch: Batch, rng: Generator) -> None:
        """Offers labelled rows, in order. One number a row is drawn from `rng`, kept or not."""
        draws = rng.random(len(batch))
        rows = np.flatnonzero(draws < self._limit)
        first, self._seen = self._seen, self._seen + len(batch)
        if not len(rows) or not self.capacity:
            self._rows.put(rows[:0], batch, rows[:0])  # no row, but new classes
            return
        draws = draws[rows]
        size, taken = self._size, min(self.capacity, self._size + len(rows))
        places = np.arange(size, taken)
        if (over := size + len(rows) - self.capacity) > 0:
            together = np.concatenate([self._draws[:size], draws])
            leaving = np.argpartition(together, taken)[taken : taken + over]
            self._limit = float(together[leaving].min())
            staying = np.ones(len(rows), np.bool_)
            staying[leaving[leaving >= size] - size] = False
            rows, draws = rows[staying], draws[staying]
            places = np.concatenate([np.sort(leaving[leaving < size]), places])
        self._rows.put(places, batch, rows)
        self._draws[places] = draws
        self._arrivals[places] = first + rows
        self._size = taken

    def sample(self, n: int, rng: Generator) -> Batch:
        """n rows (fewer where fewer are kept) without replacement, in the order they came in."""
        order = np.argsort(self._arrivals[: self._size])
        if n < self._size:
            order = order[np.sort(rng.choice(self._size, max(n, 0), replace=False, shuffle=False))]
        return self._rows.take(order)

    def forget(self, ids: Collection[str]) -> int:
        """Removes every row of these ids; returns how many rows went."""
        places = np.arange(self._size)
        gone = self._rows.of(ids, places)
        n = int(gone.sum())
        if n:
            self._keep(places[~gone])
        return n

    def _keep(self, places: IntArray) -> None:
        self._rows.arrange(places)
        self._size = len(places)
        self._draws[: self._size] = self._draws[places]
        self._arrivals[: self._size] = self._arrivals[places]

    def state(self) -> State:
        """Plain data: the rows in the order they came, their draws, and the limit."""
        order = np.argsort(self._arrivals[: self._size])
        return {
            "policy": self.policy,
            "limit": self._limit,
            "seen": self._seen,
            "draws": self._draws[order],
            "arrivals": self._arrivals[order],
            "rows": self._rows.state(order),
        }

    def _restore(self, state: State) -> None:
        """Goes on from a state. A state of a larger capacity is cut down to a smaller uniform sample."""
        draws = np.asarray(state["draws"], np.float64)
        self._limit = float(state["limit"])
        self._seen = int(state["seen"])
        whole = Rows(len(draws))
        n = whole.restore(state["rows"])
        kept = np.arange(n)
        if n > self.capacity:
            order = np.argsort(draws)
            self._limit = float(draws[order[self.capacity]])
            kept = np.sort(order[: self.capacity])
        self._size = len(kept)
        self._draws[: self._size] = draws[kept]
        self._arrivals[: self._size] = np.asarray(state["arrivals"], np.int64)[kept]
        self._rows.n_classes = whole.n_classes
        self._rows.put(np.arange(self._size), whole.take(kept), np.arange(self._size))
