"""River's answers, one dict or value a row -> the score matrix that learners give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from core.plain import FloatArray
from core.schema import Task

FAILED: Final = None  # the answer of a model that raised: it knows nothing
_CLOSE: Final = 1e-9  # shares that sum to 1 within this are left as they are, to the last bit


class Answers:
    """Turns answers into finite scores. What is no finite answer becomes the one of a model that knows
    nothing (0.5 each, equal shares of the classes met, 0.0), and is counted in `non_finite`."""

    def __init__(self, task: Task, labels_only: bool) -> None:
        self._task = task
        self._labels_only = labels_only
        self.non_finite = 0

    def asker(self, model: Any) -> Callable[[dict[str, Any]], Any]:
        """The model's own method that answers for one row."""
        value = self._task == "regression" or self._labels_only
        asker: Callable[[dict[str, Any]], Any] = model.predict_one if value else model.predict_proba_one
        return asker

    def scores(self, answers: list[Any], width: int) -> FloatArray:
        """Scores [n, width] of answers in order."""
        if self._task == "regression":
            return self._values(answers)
        if self._labels_only:
            answers = [None if label is None else {label: 1.0} for label in answers]
        if self._task == "binary":
            shares = np.empty((len(answers), 2))
            shares[:, 0] = [p.get(False, 0.0) if p else 0.0 for p in answers]
            shares[:, 1] = [p.get(True, 0.0) if p else 0.0 for p in answers]
        else:
            shares = np.zeros((len(answers), width))
            for row, p in zip(shares, answers, strict=True):
                for code, share in (p or {}).items():
                    if code < width:
                        row[code] = share
        return self._normalised(shares, answers)

    def _normalised(self, shares: FloatArray, answers: list[Any]) -> FloatArray:
        """Rows that sum to 1, or to 0 where no class was met."""
        with np.errstate(invalid="ignore", over="ignore"):
            totals = shares.sum(axis=1)
            good = (np.abs(totals - 1.0) < _CLOSE) & np.all(shares >= 0.0, axis=1)
        for i in np.nonzero(~good)[0].tolist():
            row, total = shares[i], float(totals[i])
            if np.isfinite(total) and total > 0.0 and (row >= 0.0).all():
                row /= total
                continue
            self.non_finite += not np.isfinite(total)
            if self._task == "binary":
                row[:] = 0.5
                continue
            met = [code for code in (answers[i] or {}) if code < len(row)]
            row[:] = 0.0
            row[met] = 1.0 / max(1, len(met))
        return shares

    def _values(self, answers: list[Any]) -> FloatArray:
        values = np.array([0.0 if v is None else v for v in answers], dtype=np.float64).reshape(
            len(answers), 1
        )
        wrong = ~np.isfinite(values)
        self.non_finite += int(wrong.sum())
        values[wrong] = 0.0
        return values
