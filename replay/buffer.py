"""The port that every replay buffer fills."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from numpy.random import Generator

from core.batch import Batch
from core.plain import State


class Buffer(Protocol):
    """Keeps some labelled rows of the past, bounded."""

    def add(self, batch: Batch, rng: Generator) -> None:
        """Offers labelled rows, in order; which stay is the buffer's rule, with randomness from `rng`.
        Offering rows in one batch or in several leaves the same kind of sample."""
        ...

    def sample(self, n: int, rng: Generator) -> Batch:
        """n rows (fewer where fewer are kept) without replacement, in the order they came in."""
        ...

    def forget(self, ids: Collection[str]) -> int:
        """Removes every row of these ids; returns how many rows went."""
        ...

    def __len__(self) -> int: ...

    def state(self) -> State: ...
