"""Count windows: examples grouped into mini-batches."""

from __future__ import annotations

import numpy as np

from core.plain import BoolArray, IntArray


class CountWindow:
    """Releases examples `count` at a time, when the last of them comes. The open window holds slots."""

    def __init__(self, count: int, open_slots: IntArray | None = None) -> None:
        self._count = count
        self.open: IntArray = np.empty(0, dtype=np.int64) if open_slots is None else open_slots

    def push(self, slots: IntArray, positions: IntArray) -> tuple[IntArray, IntArray]:
        """Takes examples in order; returns those released and the positions at which they are: that of the
        example that closed their window."""
        if self._count == 1 and not len(self.open):
            return slots, positions
        held = len(self.open)
        waiting = np.concatenate([self.open, slots])
        windows = len(waiting) // self._count if len(slots) else 0
        n = windows * self._count
        self.open = waiting[n:]
        if n == 0:
            return waiting[:0], positions[:0]
        # Windows that a smaller count closes after the fact are closed by the first example that comes.
        closers = np.maximum(np.arange(1, windows + 1) * self._count - 1 - held, 0)
        return waiting[:n], np.repeat(positions[closers], self._count)

    def discard(self, rows: BoolArray) -> IntArray:
        """Takes these out of the open window (a mask over `open`); returns their slots."""
        gone, self.open = self.open[rows], self.open[~rows]
        return gone
