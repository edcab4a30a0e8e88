"""The newest rows."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.random import Generator

from core.batch import Batch
from core.plain import IntArray, State
from replay.rows import Rows


class Recent:
    """The newest `capacity` rows, in a ring."""

    policy = "recent"

    def __init__(self, capacity: int, state: State | None = None) -> None:
        if capacity < 0:
            raise ValueError(f"capacity: 0 or more, not {capacity}")
        self.capacity = capacity
        self._rows = Rows(capacity)
        self._oldest = 0  # its place; 0 until the ring is full
        self._size = 0
        if state is not None:
            self._restore(state)

    def __len__(self) -> int:
        return self._size

    def _places(self) -> IntArray:
        """The places of the rows, oldest first."""
        return (self._oldest + np.arange(self._size)) % max(self.capacity, 1)

    def add(self, batch: Batch, rng: Generator) -> None:  # noqa: ARG002  # the seam's; nothing is random here
        """Offers labelled rows, in order; all are taken, the oldest leave."""
        rows = np.arange(max(0, len(batch) - self.capacity), len(batch))
        places = (self._oldest + self._size + np.arange(len(rows))) % max(self.capacity, 1)
        self._rows.put(places, batch, rows)
        over = max(0, self._size + len(rows) - self.capacity)
        self._oldest = (self._oldest + over) % max(self.capacity, 1)
        self._size += len(rows) - over

    def sample(self, n: int, rng: Generator) -> Batch:
        """n rows (fewer where fewer are kept) without replacement, in the order they came in."""
        places = self._places()
        if n < self._size:
            places = places[np.sort(rng.choice(self._size, max(n, 0), replace=False, shuffle=False))]
        return self._rows.take(places)

    def forget(self, ids: Collection[str]) -> int:
        """Removes every row of these ids; returns how many rows went."""
        places = self._places()
        gone = self._rows.of(ids, places)
        n = int(gone.sum())
        if n:
            self._rows.arrange(places[~gone])
            self._oldest, self._size = 0, self._size - n
        return n

    def state(self) -> State:
        """Plain data: the rows, oldest first."""
        return {"policy": self.policy, "rows": self._rows.state(self._places())}

    def _restore(self, state: State) -> None:
        """Goes on from a state; of one with a larger capacity, the newest rows stay."""
        whole = Rows(len(state["rows"]["ids"]))
        n = whole.restore(state["rows"])
        kept = np.arange(max(0, n - self.capacity), n)
        self._size = len(kept)
        self._rows.n_classes = whole.n_classes
        self._rows.put(np.arange(self._size), whole.take(kept), np.arange(self._size))
