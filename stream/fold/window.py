"""Count windows: examples grouped into mini-batches."""

from __future__ import annotations

import numpy as np

from core.plain import IntArray


class CountWindow:
    """Releases examples `count` at a time, when the last of them comes. The open window holds slots."""

    def __init__(self, count: int, open_slots: IntArray | None = None) -> None:
        self._count = count
        self.open: IntArray = np.empty(0, dtype=np.int64) if open_slots is None else open_slots

    def push(self, slots: IntArray, positions: IntArray) -> tuple[IntArray, IntArray]:
        """Takes examples in order; returns those released and the positions at which they are: that of the
        example that closed their window."""
        if self._count == 1:
            return slots, positions
        held = len(self.open)
        waiting = np.concatenate([self.open, slots])
        windows = len(waiting) // self._count
        n = windows * self._count
        self.open = waiting[n:]
        if n == 0:
            return waiting[:0], positions[:0]
        closers = np.arange(1, windows + 1) * self._count - 1 - held
        return waiting[:n], np.repeat(positions[closers], self._count)

    def discard(self, slot: int) -> bool:
        """Takes this slot out of the open window; whether it was in it."""
        keep = self.open != slot
        found = not keep.all()
        self.open = self.open[keep]
        return bool(found)
