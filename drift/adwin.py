"""ADWIN: a window that shrinks when its older and newer parts differ."""

from __future__ import annotations

import numpy as np

from core.errors import ConfigError
from core.plain import FloatArray, State
from drift import kernels
from drift.detector import Verdict


class Adwin:
    """ADWIN2 (Bifet & Gavaldà 2007, "Learning from time-changing data with adaptive windowing", sec. 4),
    with the defaults and results of River's `drift.ADWIN`: the same widths, estimations and changes.

    A change in either direction drops the window; only an increase of the mean is a drift, a decrease is
    counted in `improvements`. The bound assumes losses in [0, 1]: larger ones are taken, but one huge loss
    raises the window's variance and hides later changes for as long as it stays in the window.
    """

    name = "adwin"

    def __init__(
        self,
        delta: float = 0.002,
        clock: int = 32,
        max_buckets: int = 5,
        min_window_length: int = 5,
        grace_period: int = 10,
        state: State | None = None,
    ) -> None:
        self._delta = float(delta)
        self._clock = int(clock)
        self._shortest = float(min_window_length)
        self._grace = float(grace_period)
        shape = (kernels.LEVELS, int(max_buckets) + 1)
        self._totals = np.zeros(shape)
        self._variances = np.zeros(shape)
        self._sizes = np.zeros(kernels.LEVELS, np.int64)
        self._window = np.zeros(3)
        self._marks = np.array([0, 1, 0], np.int64)
        self._skipped = 0
        self._drifts = 0
        self._improvements = 0
        if state is not None:
            self._restore(state)

    def _restore(self, state: State) -> None:
        totals = np.array(state["totals"], np.float64)
        if totals.shape != self._totals.shape:
            raise ConfigError(
                f"adwin: max_buckets is {self._totals.shape[1] - 1}, "
                f"but the stored window was kept with {totals.shape[1] - 1}"
            )
        self._totals = totals
        self._variances = np.array(state["variances"], np.float64)
        self._sizes = np.array(state["sizes"], np.int64)
        self._window = np.array(state["window"], np.float64)
        self._marks = np.array(state["marks"], np.int64)
        self._skipped = int(state["skipped"])
        self._drifts = int(state["drifts"])
        self._improvements = int(state["improvements"])

    def update(self, values: FloatArray) -> Verdict:
        """Takes the losses in order. ADWIN has no warning zone: `warning_at` is always -1."""
        first, drifts, improvements, skipped = kernels.adwin(
            np.array(values, np.float64, order="C"),  # a copy: the kernel is compiled for writable arrays
            self._totals,
            self._variances,
            self._sizes,
            self._window,
            self._marks,
            self._delta,
            self._clock,
            self._shortest,
            self._grace,
        )
        self._skipped += skipped
        self._drifts += drifts
        self._improvements += improvements
        return Verdict(-1, int(first), int(drifts))

    @property
    def skipped(self) -> int:
        """How many values were not finite."""
        return self._skipped

    @property
    def drifts(self) -> int:
        """How many changes for the worse there were."""
        return self._drifts

    @property
    def improvements(self) -> int:
        """How many changes for the better there were."""
        return self._improvements

    @property
    def width(self) -> int:
        """How many values the window holds."""
        return int(self._window[kernels.WIDTH])

    @property
    def estimation(self) -> float:
        """The mean of the window; 0 where it is empty."""
        width = self._window[kernels.WIDTH]
        return float(self._window[kernels.TOTAL] / width) if width else 0.0

    @property
    def variance(self) -> float:
        """The sum of squared deviations in the window."""
        return float(self._window[kernels.VARIANCE])

    def state(self) -> State:
        return {
            "totals": self._totals.copy(),
            "variances": self._variances.copy(),
            "sizes": self._sizes.copy(),
            "window": self._window.copy(),
            "marks": self._marks.copy(),
            "skipped": self._skipped,
            "drifts": self._drifts,
            "improvements": self._improvements,
        }
