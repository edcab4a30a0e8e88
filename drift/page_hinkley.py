"""Page-Hinkley: a cumulative sum of how far losses lie above their mean."""

from __future__ import annotations

import numpy as np

from core.plain import FloatArray, State
from drift import kernels
from drift.detector import Verdict


class PageHinkley:
    """The Page-Hinkley test (Page 1954, "Continuous inspection schemes"), for increases only, with the
    defaults and results of River's `drift.PageHinkley(mode="up")`. `delta` and `threshold` are in units of
    the loss."""

    name = "page_hinkley"

    def __init__(
        self,
        min_instances: int = 30,
        delta: float = 0.005,
        threshold: float = 50.0,
        alpha: float = 1 - 0.0001,
        state: State | None = None,
    ) -> None:
        self._min_instances = int(min_instances)
        self._delta = float(delta)
        self._threshold = float(threshold)
        self._alpha = float(alpha)
        self._sums = np.zeros(3)
        self._marks = np.zeros(2, np.int64)
        self._skipped = 0
        self._drifts = 0
        if state is not None:
            self._sums = np.array(state["sums"], np.float64)
            self._marks = np.array(state["marks"], np.int64)
            self._skipped = int(state["skipped"])
            self._drifts = int(state["drifts"])

    def update(self, values: FloatArray) -> Verdict:
        """Takes the losses in order. The test has no warning zone: `warning_at` is always -1."""
        first, drifts, _, skipped = kernels.page_hinkley(
            np.array(values, np.float64, order="C"),  # a copy: the kernel is compiled for writable arrays
            self._sums,
            self._marks,
            self._min_instances,
            self._delta,
            self._threshold,
            self._alpha,
        )
        self._skipped += skipped
        self._drifts += drifts
        return Verdict(-1, int(first), int(drifts))

    @property
    def skipped(self) -> int:
        """How many values were not finite."""
        return self._skipped

    @property
    def drifts(self) -> int:
        """How many drifts there were."""
        return self._drifts

    @property
    def width(self) -> int:
        """How many values the mean is over."""
        return int(self._marks[kernels.SEEN])

    @property
    def estimation(self) -> float:
        """The mean since the last drift."""
        return float(self._sums[kernels.MEAN])

    def state(self) -> State:
        return {
            "sums": self._sums.copy(),
            "marks": self._marks.copy(),
            "skipped": self._skipped,
            "drifts": self._drifts,
        }
