"""Shadow traffic: asked the same, after the answer has gone out, harming nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from core.batch import Batch, concat
from serving.loading import Loaded, Served
from serving.metrics import ServingMetrics

_log = logging.getLogger("riverrun.serving")

_GATHER_S = 0.005  # waiting a little makes one batch of many rows


class Mirror:
    """A bounded queue and one thread. Rows that find no room are dropped and counted."""

    def __init__(self, metrics: ServingMetrics, capacity: int = 4096) -> None:
        self._metrics = metrics
        self._capacity = capacity
        self._queue: deque[tuple[Served, Batch, list[list[float]]]] = deque()
        self._rows = 0  # put so far, and taken so far: each written by one thread
        self._taken = 0
        self._news = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="riverrun-mirror", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; what is queued is dropped."""
        self._stopping = True
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def put(self, served: Served, batch: Batch, rows: list[list[float]]) -> None:
        """Queues an answered batch for the shadows of `served`. Never waits. Called by one thread."""
        n = len(batch)
        if self._rows - self._taken + n > self._capacity:
            self._metrics.dropped[served.model] += n * len(served.shadows)
            return
        self._rows += n
        self._queue.append((served, batch, rows))
        if not self._news.is_set():
            self._news.set()

    def _run(self) -> None:
        while True:
            self._news.wait()
            if self._stopping:
                return
            time.sleep(_GATHER_S)
            self._news.clear()
            items = [self._queue.popleft() for _ in range(len(self._queue))]
            try:
                self._process(items)
            except Exception:  # the thread must outlive whatever a shadow does
                _log.exception("mirroring failed")
            self._taken += sum(len(batch) for _, batch, _ in items)

    def _process(self, items: Sequence[tuple[Served, Batch, list[list[float]]]]) -> None:
        groups: dict[int, list[tuple[Served, Batch, list[list[float]]]]] = {}
        for item in items:  # one assignment's rows have one schema
            groups.setdefault(id(item[0]), []).append(item)
        for group in groups.values():
            served = group[0][0]
            for shadow in served.shadows:
                if not self._compare(served.model, shadow, group):
                    for item in group:  # some row is the cause: one by one, so that the others count
                        if not self._compare(served.model, shadow, [item]):
                            self._metrics.shadow[served.model, "failed"] += len(item[1])

    def _compare(
        self, model: str, shadow: Loaded, items: Sequence[tuple[Served, Batch, list[list[float]]]]
    ) -> bool:
        batch = concat([batch for _, batch, _ in items])
        try:
            scores = shadow.learner.predict(batch).scores
        except Exception as error:
            _log.debug("%s: shadow version %d failed: %s", model, shadow.version, error)
            return False
        if not np.isfinite(scores).all():
            return False
        if shadow.task == "regression":
            self._metrics.shadow[model, "answered"] += len(batch)
            return True
        labels = scores.argmax(axis=1)
        answered = np.array([row for _, _, rows in items for row in rows]).argmax(axis=1)
        agreed = int((labels == answered).sum())
        self._metrics.shadow[model, "agreed"] += agreed
        self._metrics.shadow[model, "differed"] += len(batch) - agreed
        return True
