"""How well scores rank positives above negatives, in bounded memory."""

from __future__ import annotations

import numpy as np

from core.plain import BoolArray, FloatArray, State

BINS = 2_048
LIMIT = 16.0  # of the log-odds: probabilities within 1e-7 of 0 and 1 are told apart


class Ranking:
    """Histograms of the positives' and the negatives' log-odds: 2,048 bins of 1/64 each.

    Scores in one bin count as tied, so `roc_auc` is off by at most `roc_auc_error`, half the share of
    pairs (positive, negative) that fall in the same bin: about 0.001 for scores spread over the usual
    log-odds, and 0 for learners whose different scores lie further apart than a bin.
    """

    def __init__(self, state: State | None = None) -> None:
        shape = (2, BINS)  # negatives, positives
        self._counts = np.zeros(shape, np.int64) if state is None else np.array(state["counts"], np.int64)

    def update(self, negative: FloatArray, positive: FloatArray, truth: BoolArray) -> None:
        """Probabilities of the two classes for each row, and which rows are positive. A row without a
        usable probability counts as undecided."""
        with np.errstate(all="ignore"):
            odds = np.log(np.maximum(positive, 1e-300)) - np.log(np.maximum(negative, 1e-300))
        odds = np.clip(np.where(np.isfinite(odds), odds, 0.0), -LIMIT, LIMIT)
        bins = np.minimum(((odds + LIMIT) * (BINS / (2 * LIMIT))).astype(np.int64), BINS - 1)
        self._counts += np.bincount(bins + BINS * truth, minlength=2 * BINS).reshape(2, BINS)

    @property
    def roc_auc(self) -> float | None:
        """The chance that a positive scores above a negative, ties counting half; None with one class."""
        negatives, positives = self._counts
        pairs = float(negatives.sum()) * float(positives.sum())
        if not pairs:
            return None
        below = np.cumsum(negatives) - 0.5 * negatives
        return float(positives @ below) / pairs

    @property
    def roc_auc_error(self) -> float | None:
        """How far `roc_auc` can be from that of the exact scores."""
        negatives, positives = self._counts
        pairs = float(negatives.sum()) * float(positives.sum())
        return 0.5 * float(positives.astype(np.float64) @ negatives) / pairs if pairs else None

    @property
    def pr_auc(self) -> float | None:
        """Average precision: the mean over positives of the precision at their score; None with one
        class."""
        negatives, positives = self._counts
        if not negatives.any() or not positives.any():
            return None
        above = np.flip(self._counts, axis=1).cumsum(axis=1)
        chosen = np.flip(positives) > 0
        precision = above[1, chosen] / above[:, chosen].sum(axis=0)
        return float(np.flip(positives)[chosen] @ precision / positives.sum())

    def state(self) -> State:
        return {"counts": self._counts.copy()}
