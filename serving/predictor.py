"""The data plane: who answers, and what. Knows no transport."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.batch import Batch
from core.clock import Clock
from core.errors import ModelFailed
from core.plain import FloatArray, ObjectArray
from core.rollout import Role
from rollout.routing import route
from serving.loading import Loaded, Served
from serving.metrics import ServingMetrics
from serving.mirror import Mirror

_log = logging.getLogger("riverrun.serving")


@dataclass(slots=True)
class Answer:
    """One version's scores for all rows of a request."""

    served: Served
    loaded: Loaded
    role: Role
    batch: Batch
    rows: list[list[float]]  # scores: a probability a class, or one value


class Predictor:
    """Answers from one `Served`, whatever is swapped in meanwhile."""

    def __init__(self, metrics: ServingMetrics, clock: Clock, mirror: Mirror) -> None:
        self._metrics = metrics
        self._clock = clock
        self._mirror = mirror
        self._failing = threading.Lock()
        self._failed: Loaded | None = None  # the last one: told once, however many requests it fails

    def predict(self, served: Served, ids: list[str], X: FloatArray, cells: ObjectArray) -> Answer:
        """The scores of all rows, by one version: the one that the first id is routed to. A canary that
        fails is covered by the champion. Changes nothing; safe from any thread. Raises ModelFailed."""
        n = len(ids)
        row_ids = np.empty(n, dtype=object)
        ts_ms = np.empty(n, dtype=np.int64)
        if n == 1:  # one element is set in half the time of a slice of one
            row_ids[0], ts_ms[0] = ids[0], self._clock.now_ms()
        else:
            row_ids[:], ts_ms[:] = ids, self._clock.now_ms()
        canary = served.canary
        if canary is not None and route(ids[0], served.canary_share, canary.lineage) == "canary":
            batch = Batch(row_ids, ts_ms, X, cells, None, len(canary.classes))
            try:
                return Answer(served, canary, "canary", batch, self._scores(served, canary, "canary", batch))
            except ModelFailed:
                pass  # counted and logged; the champion answers
        champion = served.champion
        batch = Batch(row_ids, ts_ms, X, cells, None, len(champion.classes))
        rows = self._scores(served, champion, "champion", batch)
        return Answer(served, champion, "champion", batch, rows)

    def _scores(self, served: Served, loaded: Loaded, role: Role, batch: Batch) -> list[list[float]]:
        try:
            rows: list[list[float]] = loaded.learner.predict(batch).scores.tolist()
            width = len(loaded.names) if loaded.task != "regression" else 1
            if len(rows) != len(batch.ids):
                raise ValueError(f"{len(rows)} answers to {len(batch)} rows")
            for row in rows:
                if len(row) != width:
                    raise ValueError(f"{len(row)} scores, not {width}")
                if not math.isfinite(sum(row)):
                    raise ArithmeticError("a number that is not finite")
        except Exception as error:  # a learner may be anybody's code
            what = f"{served.model}: version {loaded.version}, the {role}, cannot answer"
            with self._failing:
                self._metrics.predictions[served.model, role, "failed"] += len(batch)
                level = logging.DEBUG if self._failed is loaded else logging.WARNING
                self._failed = loaded
            _log.log(level, "%s: %s: %s", what, type(error).__name__, error)
            raise ModelFailed(what) from error
        return rows

    def done(self, answer: Answer, seconds: float) -> None:
        """Counts an answer that went out, and lets the shadows see its rows. One thread calls it."""
        model, n = answer.served.model, len(answer.rows)
        self._metrics.predictions[model, answer.role, "ok"] += n
        self._metrics.latency[model, answer.role].observe(seconds)
        if answer.served.shadows:
            self._mirror.put(answer.served, answer.batch, answer.rows)

    def staleness_s(self, loaded: Loaded) -> float:
        """Seconds since the version was taken."""
        return max(0, self._clock.now_ms() - loaded.created_at_ms) / 1000


def label_of(loaded: Loaded, row: list[float]) -> Any:
    """The most probable class (the first of equals); None while no class has been learned."""
    best = max(row) if row else 0.0
    return loaded.classes[row.index(best)] if best > 0.0 else None
