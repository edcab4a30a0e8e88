"""The port that every drift detector fills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from core.plain import FloatArray, State


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a detector saw in the values given: indices into them, -1 for none."""

    warning_at: int = -1
    drift_at: int = -1  # the first drift among these values
    drifts: int = 0  # how many there were

    @property
    def stable(self) -> bool:
        return self.warning_at < 0 and self.drift_at < 0


class Detector(Protocol):
    """Watches a loss: higher is worse, and only a change for the worse is a drift. Values that are not
    finite are counted and skipped, never seen. After a drift it starts anew by itself."""

    name: str

    def update(self, values: FloatArray) -> Verdict:
        """Takes the values in order; equal to taking them one at a time."""
        ...

    @property
    def skipped(self) -> int:
        """How many values were not finite."""
        ...

    def state(self) -> State: ...
