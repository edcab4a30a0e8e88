"""What a model must beat: answers that need no features."""

from __future__ import annotations

import numpy as np

from core.plain import FloatArray, IntArray, State
from core.schema import Task

LARGEST = 1e290  # a label beyond counts as this large: sums stay finite


class Baselines:
    """The no-change baseline answers the label known last; the other one the most frequent class so far
    (ties: the lower code) or the mean so far. Both answer when the event arrives, from the labels known
    by then, as the model does: late labels make them worse too.

    Before the first label there is no answer: -1, which counts as wrong, in classification; NaN, which is
    left out, in regression.
    """

    def __init__(self, task: Task, state: State | None = None) -> None:
        self.task = task
        self._kind = _Values(state) if task == "regression" else _Classes(state)

    @classmethod
    def from_state(cls, state: State) -> Baselines:
        return cls(state["task"], state)

    def state(self) -> State:
        """Plain data, not shared with the baselines."""
        return {"task": self.task} | self._kind.state()

    def answers(
        self,
        label_positions: IntArray,
        labels: IntArray | FloatArray,
        event_positions: IntArray,
        n_classes: int = 0,
    ) -> tuple[IntArray | FloatArray, IntArray | FloatArray]:
        """What (no change, majority or mean) answer for the events of one turn.

        Positions count the turn's merged order; `label_positions` grow, those of events need not. A label
        is known to an event at its own position and after it. Labels of earlier turns are remembered, and
        these are from now on. `n_classes` is how many classes are known by the end of the turn.
        """
        known = np.searchsorted(label_positions, event_positions, side="right")
        return self._kind.answers(labels, known, n_classes)

    def score(
        self, no_change: IntArray | FloatArray, other: IntArray | FloatArray, y: IntArray | FloatArray
    ) -> None:
        """Compares answers given earlier with their labels, now that these are here."""
        self._kind.score(no_change, other, y)

    def report(self) -> dict[str, float | None]:
        """Accuracy of `no_change` and `majority`, or mean absolute error of `no_change` and `mean`; None
        while nothing was scored."""
        return self._kind.report()


class _Classes:
    def __init__(self, state: State | None) -> None:
        stored = state or {"last": -1, "counts": [], "n": 0, "no_change_hits": 0, "majority_hits": 0}
        self._last = int(stored["last"])
        self._counts = np.array(stored["counts"], np.int64)
        self._n = int(stored["n"])
        self._no_change_hits = int(stored["no_change_hits"])
        self._majority_hits = int(stored["majority_hits"])

    def state(self) -> State:
        return {
            "last": self._last,
            "counts": self._counts.copy(),
            "n": self._n,
            "no_change_hits": self._no_change_hits,
            "majority_hits": self._majority_hits,
        }

    def answers(
        self, labels: IntArray | FloatArray, known: IntArray, n_classes: int
    ) -> tuple[IntArray, IntArray]:
        codes = labels.astype(np.int64, copy=False)
        k = max(n_classes, len(self._counts), int(codes.max()) + 1 if len(codes) else 0)
        self._counts = np.pad(self._counts, (0, k - len(self._counts)))
        last = np.concatenate([[self._last], codes])
        majority = self._majorities(codes, k)
        self._last = int(last[-1])
        self._counts += np.bincount(codes, minlength=k)
        return last[known], majority[known]

    def _majorities(self, codes: IntArray, k: int) -> IntArray:
        """The most frequent class before each label, and after the last. A class's count changes only
        when it occurs, so the leader is the running best of (its count by then, lower code first)."""
        leader = int(self._counts.argmax()) if self._counts.any() else -1
        if not len(codes):
            return np.array([leader])
        order = np.argsort(codes, kind="stable")
        starts = np.cumsum(np.bincount(codes, minlength=k)) - np.bincount(codes, minlength=k)
        counts = np.empty(len(codes), np.int64)
        counts[order] = np.arange(len(codes)) - starts[codes[order]] + 1
        counts += self._counts[codes]
        first = self._counts[leader] * k + (k - 1 - leader) if leader >= 0 else -1
        best = np.maximum.accumulate(np.concatenate([[first], counts * k + (k - 1 - codes)]))
        return np.where(best < 0, -1, k - 1 - best % k)

    def score(
        self, no_change: IntArray | FloatArray, other: IntArray | FloatArray, y: IntArray | FloatArray
    ) -> None:
        self._n += len(y)
        self._no_change_hits += int(np.count_nonzero(no_change == y))
        self._majority_hits += int(np.count_nonzero(other == y))

    def report(self) -> dict[str, float | None]:
        n = self._n
        return {
            "no_change": self._no_change_hits / n if n else None,
            "majority": self._majority_hits / n if n else None,
        }


class _Values:
    def __init__(self, state: State | None) -> None:
        stored = state or {"last": None, "seen": 0, "total": 0.0, "n": [0, 0], "absolute": [0.0, 0.0]}
        self._last = np.nan if stored["last"] is None else float(stored["last"])
        self._seen = int(stored["seen"])
        self._total = float(stored["total"])
        self._n = [int(n) for n in stored["n"]]
        self._absolute = [float(total) for total in stored["absolute"]]

    def state(self) -> State:
        return {
            "last": self._last if self._seen else None,
            "seen": self._seen,
            "total": self._total,
            "n": list(self._n),
            "absolute": list(self._absolute),
        }

    def answers(
        self,
        labels: IntArray | FloatArray,
        known: IntArray,
        n_classes: int,  # noqa: ARG002  # both kinds are called alike
    ) -> tuple[FloatArray, FloatArray]:
        values: FloatArray = np.clip(labels.astype(np.float64, copy=False), -LARGEST, LARGEST)
        last = np.concatenate([[self._last], values])
        totals = np.cumsum(np.concatenate([[self._total], values]))  # one by one, as any split of turns
        counts = self._seen + np.arange(len(totals))
        means = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
        self._last = float(last[-1])
        self._total = float(totals[-1])
        self._seen = int(counts[-1])
        return last[known], means[known]

    def score(
        self, no_change: IntArray | FloatArray, other: IntArray | FloatArray, y: IntArray | FloatArray
    ) -> None:
        for i, answer in enumerate((no_change, other)):
            given = np.isfinite(answer)
            self._n[i] += int(np.count_nonzero(given))
            self._absolute[i] += float(np.abs(answer[given] - np.clip(y[given], -LARGEST, LARGEST)).sum())

    def report(self) -> dict[str, float | None]:
        mae = [total / n if n else None for total, n in zip(self._absolute, self._n, strict=True)]
        return {"no_change": mae[0], "mean": mae[1]}
