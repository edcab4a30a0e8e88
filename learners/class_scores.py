"""Prequential scores of a classifier."""

from __future__ import annotations

import numpy as np

from core.plain import BoolArray, FloatArray, IntArray, State
from learners.ranking import Ranking
from learners.recent import Last

LEAST = 1e-15  # log loss never takes the logarithm of less


def predicted(scores: FloatArray) -> IntArray:
    """The class of each row of scores [n, k]: the first column with the highest score; -1 where the row
    is all zero (no class known yet) or not finite."""
    n, k = scores.shape
    if k == 0:
        return np.full(n, -1, np.int64)
    if k == 2:  # the common case, several times faster
        best = (scores[:, 1] > scores[:, 0]).astype(np.int64)
        top = np.where(best, scores[:, 1], scores[:, 0])
    else:
        best = scores.argmax(axis=1)
        top = scores.max(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        usable = (top > 0) & np.isfinite(scores.sum(axis=1))
    return np.where(usable, best, -1)


def true_scores(scores: FloatArray, y: IntArray) -> FloatArray:
    """The score that each row gave its true class; 0 where the class has no column or the row is not
    finite."""
    n, k = scores.shape
    known = y < k
    p = np.zeros(n)
    rows = np.flatnonzero(known)
    p[rows] = scores[rows, y[rows]]
    p[~np.isfinite(p)] = 0.0
    return p


class ClassScores:
    """Counts, per class, of truths, answers and hits: what accuracy, balanced accuracy, kappa and F1 are
    made of, so that memory grows with the classes and not with their square."""

    def __init__(self, binary: bool, n_classes: int = 0, state: State | None = None) -> None:
        self._ranking = Ranking() if binary else None
        self.n = 0
        self._no_change_hits = 0
        self._log_loss = 0.0
        self._truths = np.zeros(n_classes, np.int64)
        self._answers = np.zeros(n_classes, np.int64)
        self._hits = np.zeros(n_classes, np.int64)
        self._recent = Last()
        if state is not None:
            self.n = int(state["n"])
            self._no_change_hits = int(state["no_change_hits"])
            self._log_loss = float(state["log_loss"])
            self._truths = np.array(state["truths"], np.int64)
            self._answers = np.array(state["answers"], np.int64)
            self._hits = np.array(state["hits"], np.int64)
            self._recent = Last(values=np.asarray(state["recent"], np.float64))
            if binary:
                self._ranking = Ranking(state["ranking"])

    def state(self) -> State:
        return {
            "n": self.n,
            "no_change_hits": self._no_change_hits,
            "log_loss": self._log_loss,
            "truths": self._truths.copy(),
            "answers": self._answers.copy(),
            "hits": self._hits.copy(),
            "recent": self._recent.values.astype(np.uint8),
            "ranking": None if self._ranking is None else self._ranking.state(),
        }

    def update(self, scores: FloatArray, y: IntArray, no_change: IntArray | None, n_classes: int) -> None:
        """See Scores.update."""
        n = len(y)
        if not n:
            return
        k = max(n_classes, scores.shape[1], int(y.max()) + 1, len(self._truths))
        if (more := k - len(self._truths)) > 0:
            self._truths, self._answers, self._hits = (
                np.pad(counts, (0, more)) for counts in (self._truths, self._answers, self._hits)
            )
        answers = predicted(scores)
        hit = answers == y
        self.n += n
        self._truths += np.bincount(y, minlength=k)
        self._answers += np.bincount(answers + 1, minlength=k + 1)[1:]
        self._hits += np.bincount(y[hit], minlength=k)
        if no_change is not None:
            self._no_change_hits += int(np.count_nonzero(no_change == y))
        p = np.clip(true_scores(scores, y), LEAST, 1.0 - LEAST)
        self._log_loss -= float(np.log(p).sum())
        self._recent.add(hit.astype(np.float64))
        if self._ranking is not None:
            self._rank(scores, y == 1)

    def _rank(self, scores: FloatArray, truth: BoolArray) -> None:
        if self._ranking is not None:
            if scores.shape[1] == 2:
                self._ranking.update(scores[:, 0], scores[:, 1], truth)
            else:  # fewer columns: no class known yet, or one
                undecided = np.full(len(truth), 0.5)
                self._ranking.update(undecided, undecided, truth)

    def report(self) -> dict[str, float | None]:
        """See Scores.report."""
        n = self.n
        hits = int(self._hits.sum())
        accuracy = hits / n if n else None
        seen = self._truths > 0
        balanced = float((self._hits[seen] / self._truths[seen]).mean()) if n else None
        by_chance = float((self._truths / n) @ (self._answers / n)) if n else None
        no_change = self._no_change_hits / n if n else None
        report = {
            "accuracy": accuracy,
            "balanced_accuracy": balanced,
            "kappa": _better_than(accuracy, by_chance),
            "kappa_temporal": _better_than(accuracy, no_change),
            "log_loss": self._log_loss / n if n else None,
        }
        if self._ranking is not None:
            report |= {"roc_auc": self._ranking.roc_auc, "pr_auc": self._ranking.pr_auc, "f1": self._f1()}
        return report

    def _f1(self) -> float | None:
        if len(self._truths) < 2:
            return None
        claimed = int(self._truths[1] + self._answers[1])
        return 2 * int(self._hits[1]) / claimed if claimed else None

    @property
    def recent(self) -> float | None:
        """Accuracy over the last 1,000."""
        return self._recent.mean


def _better_than(accuracy: float | None, other: float | None) -> float | None:
    """How much of what `other` gets wrong is got right; None where it gets nothing wrong."""
    if accuracy is None or other is None or other >= 1.0:
        return None
    return (accuracy - other) / (1.0 - other)
