"""Keeps the assigned versions of every configured model loaded, and swaps them in atomically."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Collection, Mapping, Sequence

from core.clock import Clock, SystemClock
from core.errors import NotReady, RiverrunError, UnknownModel
from core.rollout import Rollout
from learners.registry import build
from serving.assembly import Assembler
from serving.loading import Build, Served
from serving.metrics import ServingMetrics
from snapshots.store import SnapshotStore

_log = logging.getLogger("riverrun.serving")

RETRY_S = (0.5, 30.0)  # after a failed load: first wait, longest wait


class ModelCache:
    """Two threads: one watches the store and notes the newest rollout of each model, one loads what the
    notes ask for, skipping revisions that were overtaken meanwhile, and swaps one immutable `Served`.

    A champion that fails to load leaves everything as it was; a canary or shadow that fails leaves its
    older version of the same lineage in the role, or the role empty. Either is logged, counted and tried
    again, ever more slowly, until a newer revision comes. A revision older than one seen is never taken.
    The watching thread ends when the store is closed.
    """

    def __init__(
        self,
        store: SnapshotStore,
        models: Sequence[str],
        metrics: ServingMetrics,
        *,
        clock: Clock | None = None,
        jitter_s: float = 0.05,
        rng: random.Random | None = None,
        build_learner: Build = build,
        factories: Collection[str] = (),
    ) -> None:
        self.models = tuple(models)
        self._store = store
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._jitter_s = jitter_s  # many predictors are told at once; they need not all read at once
        self._rng = rng or random.Random()
        self._assembler = Assembler(store, build_learner, factories, self._count)
        self._served: dict[str, Served] = {}
        self._wanted: dict[str, Rollout] = {}
        self._failed: dict[str, tuple[int, int, float]] = {}  # model -> revision, failures, next try
        self._reasons: dict[str, str] = {}
        self._news = threading.Condition()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, name="riverrun-watch", daemon=True),
            threading.Thread(target=self._load_wanted, name="riverrun-load", daemon=True),
        ]
        metrics.serving = self._rows

    def start(self) -> None:
        """Begins to watch and load. Returns at once."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stops loading; what is loaded stays. The store is its owner's to close."""
        with self._news:
            self._stopping.set()
            self._news.notify_all()
        if self._threads[1].is_alive():
            self._threads[1].join(timeout=10)

    def get(self, model: str) -> Served:
        """Who answers for the model now. Raises UnknownModel, NotReady (with the reason)."""
        served = self._served.get(model)
        if served is None:
            if model not in self.models:
                raise UnknownModel(f"no model {model[:64]!r} here")
            raise NotReady(f"model {model!r} cannot answer yet: {self._reason(model)}")
        return served

    def served(self) -> Mapping[str, Served]:
        """The models that can answer, as of now."""
        return dict(self._served)

    def waiting(self) -> dict[str, str]:
        """The configured models that cannot answer yet, with the reason."""
        return {model: self._reason(model) for model in self.models if model not in self._served}

    def _reason(self, model: str) -> str:
        return self._reasons.get(model, "no version of it has been published yet")

    # The watching thread.

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                for change in self._store.watch(self.models):
                    if self._stopping.is_set():
                        return
                    self._note(change.model, change.rollout)
                return  # the store was closed
            except RiverrunError as error:
                _log.warning("watching the store failed, trying again: %s", error)
            except Exception:
                _log.exception("watching the store failed, trying again")
            self._stopping.wait(1.0)

    def _note(self, model: str, rollout: Rollout) -> None:
        if model not in self.models or rollout.champion is None:
            return
        with self._news:
            known = self._wanted.get(model)
            if known is not None and rollout.revision <= known.revision:
                if rollout.revision < known.revision:
                    _log.warning("%s: revision %d after %d refused", model, rollout.revision, known.revision)
                    self._metrics.regressions[model] += 1
                return
            self._wanted[model] = rollout
            self._news.notify_all()

    # The loading thread.

    def _load_wanted(self) -> None:
        while True:
            with self._news:
                due, wait_s = self._due()
                if not due and not self._stopping.is_set():
                    self._news.wait(wait_s)
                    due, _ = self._due()
                if self._stopping.is_set():
                    return
            if due and self._jitter_s and all(model in self._served for model in due):
                self._stopping.wait(self._rng.uniform(0.0, self._jitter_s))
            for model in due:
                self._follow(model, self._wanted[model])

    def _due(self) -> tuple[list[str], float | None]:
        due: list[str] = []
        wait_s: float | None = None
        now = time.monotonic()
        for model, rollout in self._wanted.items():
            served, failed = self._served.get(model), self._failed.get(model)
            if failed is not None and failed[0] == rollout.revision:
                left = failed[2] - now
                if left > 0:
                    wait_s = left if wait_s is None else min(wait_s, left)
                    continue
            elif served is not None and served.revision >= rollout.revision:
                continue
            due.append(model)
        return due, wait_s

    def _follow(self, model: str, rollout: Rollout) -> None:
        started = time.perf_counter()
        old = self._served.get(model)
        try:
            new = self._assembler.assemble(model, rollout, old)
        except Exception as error:
            problems, retry = {"champion": f"{type(error).__name__}: {error}"}, True
            self._reasons[model] = f"revision {rollout.revision} cannot be loaded: {error}"
        else:
            problems, retry = new.problems, new.retry
            self._served[model] = new  # the swap: one assignment, seen by all threads as a whole
        self._metrics.load_seconds[model] += time.perf_counter() - started
        before = self._failed.pop(model, None)
        failures = before[1] if before is not None and before[0] == rollout.revision else 0
        for role, problem in problems.items():
            level = logging.DEBUG if failures else logging.WARNING  # told once
            _log.log(
                level, "%s: the %s of revision %d does not serve: %s", model, role, rollout.revision, problem
            )
        if retry:
            wait_s = min(RETRY_S[0] * 2.0**failures, RETRY_S[1])
            self._failed[model] = (rollout.revision, failures + 1, time.monotonic() + wait_s)

    def _count(self, model: str, outcome: str) -> None:
        self._metrics.loads[model, outcome] += 1

    def _rows(self) -> list[tuple[str, str, int, int, float]]:
        now_ms = self._clock.now_ms()
        rows: dict[tuple[str, str], tuple[str, str, int, int, float]] = {}
        for model, served in self.served().items():
            for role, loaded in served.filled():
                age_s = max(0, now_ms - loaded.created_at_ms) / 1000
                # Of several shadows the first one is shown: versions make no labels.
                rows.setdefault((model, role), (model, role, loaded.version, served.revision, age_s))
        return list(rows.values())
