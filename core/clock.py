"""Time as a value that is passed in, so that nothing below the edges asks the machine."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records and people, monotonic time for waiting."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told, for tests and simulation."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        self._now_ms += round(seconds * 1000)
        self._monotonic_s += seconds
