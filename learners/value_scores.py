"""Prequential scores of a regressor."""

from __future__ import annotations

import math

import numpy as np

from core.plain import FloatArray, State
from learners.recent import Last

LARGEST = 1e140  # errors beyond count as this large: sums of their squares stay finite


def errors(scores: FloatArray, y: FloatArray) -> FloatArray:
    """Truth minus prediction for each row; NaN where there is no finite prediction."""
    if scores.shape[1] == 0:
        return np.full(len(y), np.nan)
    values = scores[:, 0]
    with np.errstate(all="ignore"):
        error = np.clip(y - values, -LARGEST, LARGEST)
    error[~np.isfinite(values)] = np.nan
    return error


class ValueScores:
    """Sums of errors, and the labels' running mean and sum of squared deviations (merged batch by batch:
    Chan, Golub & LeVeque 1983). Rows without a finite prediction have no error to add: they are left out
    of the scores and counted in `unanswered`."""

    def __init__(self, state: State | None = None) -> None:
        self.n = 0
        self.unanswered = 0
        self._absolute = 0.0
        self._squared = 0.0
        self._mean = 0.0
        self._spread = 0.0
        self._recent = Last()
        self._labels = Last()
        if state is not None:
            self.n = int(state["n"])
            self.unanswered = int(state["unanswered"])
            self._absolute = float(state["absolute"])
            self._squared = float(state["squared"])
            self._mean = float(state["mean"])
            self._spread = float(state["spread"])
            self._recent = Last(values=np.asarray(state["recent"], np.float64))
            self._labels = Last(values=np.asarray(state["labels"], np.float64))

    def state(self) -> State:
        return {
            "n": self.n,
            "unanswered": self.unanswered,
            "absolute": self._absolute,
            "squared": self._squared,
            "mean": self._mean,
            "spread": self._spread,
            "recent": self._recent.values.copy(),
            "labels": self._labels.values.copy(),
        }

    def update(self, scores: FloatArray, y: FloatArray) -> None:
        """See Scores.update."""
        self._labels.add(y)
        error = errors(scores, y)
        answered = np.isfinite(error)
        if not answered.all():
            error, y = error[answered], y[answered]
            self.unanswered += int(len(answered) - len(y))
        n = len(y)
        if not n:
            return
        absolute = np.abs(error)
        self._absolute += float(absolute.sum())
        self._squared += float(error @ error)
        self._recent.add(absolute)
        y = np.clip(y, -LARGEST, LARGEST)
        mean = float(y.mean())
        apart = mean - self._mean
        deviations = y - mean
        total = self.n + n
        self._spread += float(deviations @ deviations) + apart * apart * self.n * n / total
        self._mean += apart * n / total
        self.n = total

    def report(self) -> dict[str, float | None]:
        """See Scores.report."""
        n = self.n
        return {
            "mae": self._absolute / n if n else None,
            "rmse": math.sqrt(self._squared / n) if n else None,
            "r2": 1.0 - self._squared / self._spread if n > 1 and self._spread > 0 else None,
        }

    @property
    def recent(self) -> float | None:
        """Mean absolute error over the last 1,000."""
        return self._recent.mean

    @property
    def scale(self) -> float | None:
        """The range that holds the middle 90 % of the last 1,000 labels, or their largest size where
        that is 0; None before the first label. Outliers do not move it."""
        labels = self._labels.values
        if not len(labels):
            return None
        ordered = np.sort(labels)
        last = len(ordered) - 1
        spread = float(ordered[math.ceil(0.95 * last)] - ordered[math.floor(0.05 * last)])
        return spread or float(np.abs(ordered).max()) or 1.0
