"""Prequential scores of one lineage: every labelled event is scored by the prediction made for it when it
arrived. Vectorised over batches, in bounded memory."""

from __future__ import annotations

import numpy as np

from core.plain import BoolArray, FloatArray, IntArray, State
from core.schema import Task
from learners.class_scores import ClassScores, predicted, true_scores
from learners.value_scores import ValueScores, errors


class Scores:
    """Metrics of a task over all rows so far.

    A classifier's answer is the first class with the highest score; a row of zeros (no class known yet)
    or with a number that is not finite is a wrong answer. A regressor's row without a finite prediction
    is left out and counted (`unanswered`).
    """

    def __init__(self, task: Task, n_classes: int = 0, state: State | None = None) -> None:
        if state is not None and state["task"] != task:
            raise ValueError(f"scores of a {state['task']} task cannot go on as {task}")
        stored = None if state is None else state["scores"]
        self.task = task
        self._classes = None if task == "regression" else ClassScores(task == "binary", n_classes, stored)
        self._values = ValueScores(stored) if task == "regression" else None

    @classmethod
    def from_state(cls, state: State) -> Scores:
        return cls(state["task"], state=state)

    def state(self) -> State:
        """Plain data, not shared with the scores."""
        return {"task": self.task, "scores": self._kind.state()}

    @property
    def _kind(self) -> ClassScores | ValueScores:
        kind = self._classes or self._values
        if kind is None:
            raise AssertionError("scores have one kind")
        return kind

    @property
    def n(self) -> int:
        """How many rows were scored."""
        return self._kind.n

    @property
    def unanswered(self) -> int:
        """In regression: how many rows had no finite prediction."""
        return self._values.unanswered if self._values is not None else 0

    def update(
        self,
        scores: FloatArray,
        y: IntArray | FloatArray,
        no_change_codes: IntArray | None = None,
        n_classes: int = 0,
    ) -> None:
        """Takes predictions [n, k] with their truths: class codes, or numbers in regression.
        `no_change_codes` is what the no-change classifier answered for the same rows (-1: nothing),
        `n_classes` how many classes are known by now."""
        if len(scores) != len(y):
            raise ValueError(f"{len(scores)} predictions for {len(y)} labels")
        if self._classes is not None:
            codes = y.astype(np.int64, copy=False)
            self._classes.update(scores, codes, no_change_codes, n_classes)
        elif self._values is not None:
            self._values.update(scores, y.astype(np.float64, copy=False))

    def report(self) -> dict[str, float | None]:
        """Metrics by name; None where undefined (nothing scored, or one class only).

        Classification: accuracy, balanced_accuracy (mean recall of the classes that occurred), kappa
        (Cohen 1960), kappa_temporal (Žliobaitė et al. 2015: against the no-change classifier), log_loss;
        in a binary task also roc_auc and pr_auc (from histograms, see Ranking) and f1 of class 1.
        Regression: mae, rmse, r2.
        """
        return self._kind.report()

    @property
    def recent(self) -> float | None:
        """Accuracy, or mean absolute error, over the last 1,000 rows."""
        return self._kind.recent

    @property
    def scale(self) -> float | None:
        """In regression: the error that counts as 1 in `bounded_loss`, from the labels so far."""
        return self._values.scale if self._values is not None else None

    def losses(self, scores: FloatArray, y: IntArray | FloatArray) -> FloatArray:
        """The loss of each row: 1 where the class is wrong and 0 where it is right; the absolute error in
        regression, NaN where there is none. Changes nothing."""
        if self.task == "regression":
            absolute: FloatArray = np.abs(errors(scores, y.astype(np.float64, copy=False)))
            return absolute
        wrong: BoolArray = predicted(scores) != y
        return wrong.astype(np.float64)

    def bounded_loss(
        self, scores: FloatArray, y: IntArray | FloatArray, scale: float | None = None
    ) -> FloatArray:
        """The loss of each row in [0, 1], for evidence and detectors. Changes nothing.

        Classification: half the Brier score, 1 where there is no answer. Regression: the absolute error
        over `scale` (left out: that of these scores), cut at 1; 1 where there is no prediction, NaN while
        there is no scale. Two lineages are comparable only at the same scale, and evidence is sound only
        if the scale was fixed before the rows came: pass the champion's, taken before `update`.
        """
        if self.task != "regression":
            codes = y.astype(np.int64, copy=False)
            squares = np.einsum("ij,ij->i", scores, scores)
            loss = 0.5 * (squares + 1.0) - true_scores(scores, codes)
            return np.where(predicted(scores) < 0, 1.0, np.clip(loss, 0.0, 1.0))
        scale = self.scale if scale is None else scale
        if scale is None:
            return np.full(len(y), np.nan)
        error = np.abs(errors(scores, y.astype(np.float64, copy=False)))
        return np.where(np.isnan(error), 1.0, np.minimum(error / scale, 1.0))
