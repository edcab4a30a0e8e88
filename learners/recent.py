"""The last values of a stream, for displays and running scales."""

from __future__ import annotations

import numpy as np

from core.plain import FloatArray

SPAN = 1_000


class Last:
    """The last `span` values, oldest first."""

    def __init__(self, span: int = SPAN, values: FloatArray | None = None) -> None:
        self._span = span
        self._values = np.empty(0) if values is None else np.array(values, np.float64)[-span:]

    def add(self, values: FloatArray) -> None:
        """Takes values in order."""
        if len(values) >= self._span:
            self._values = values[-self._span :].astype(np.float64)  # a copy
        elif len(values):
            self._values = np.concatenate([self._values[len(values) - self._span :], values])
            self._values = self._values[-self._span :]

    @property
    def values(self) -> FloatArray:
        """Not to be written to."""
        return self._values

    @property
    def mean(self) -> float | None:
        """None while there are none."""
        return float(self._values.mean()) if len(self._values) else None
