"""The fold as its definition reads: one record at a time, in plain dicts and lists. An oracle for tests."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.batch import Batch
from core.config import ModelConfig
from core.plain import objects
from learners.registry import build
from tests.stream.fold_harness import EVENTS, Rec

JUNK = b"junk"  # the key of a record that nobody can read


@dataclass
class Waiting:
    """An event with what was said about it when it came."""

    name: str
    ts: int
    x: float
    scores: list[float]
    no_change: Any
    usual: Any
    code: float = math.nan


class NaiveFold:
    """Takes records in their merged order. Sweeps and late negatives come when a turn ends."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.regression = config.task == "regression"
        self.learner = build(config.learner, config.schema_(), config.task, config.seed, None)
        known = config.class_values()
        self.growing = known is None and not self.regression
        self.classes: list[Any] = list(known or [])
        self.waiting: dict[str, Waiting] = {}
        self.early: dict[str, tuple[float, int]] = {}
        self.done: dict[str, float] = {}
        self.window: list[Waiting] = []
        self.learned: list[tuple[str, float]] = []
        self.scored: list[tuple[list[float], float]] = []
        self.baseline: list[tuple[Any, Any, float]] = []
        self.known: list[float] = []  # codes of examples, in the order in which they were completed
        self.predicted: list[tuple[str, list[float]]] = []
        self.bad: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.events = self.labels = self.unlabelled = 0
        self.watermark = self.swept = -math.inf
        self.late: list[Waiting] = []
        self.newest: list[int] = []

    def turn(self, records: Sequence[Rec], now_ms: int) -> None:
        self.newest = []
        for record in records:
            self.take(record)
        late, self.late = self.late, []
        self.expired(late)
        self.sweep(now_ms)

    def take(self, record: Rec) -> None:
        if record.value is None:
            self.forget(str(record.key, "utf-8"))
            return
        if record.key == JUNK:
            self.bad["bad"] += 1
            return
        row = json.loads(record.value)
        code = math.nan
        if "label" in row:
            code = self.code(row["label"])
            if code == -1:
                return
        if record.lane.topic != EVENTS:
            self.label(row["id"], code, row["ts"])
        elif self.config.labels is None:
            self.event(row, code)
        else:
            self.event(row, math.nan)

    def code(self, value: Any) -> float:
        """-1: a dead letter."""
        if self.regression:
            return float(value)
        if value in self.classes and type(value) is type(self.classes[self.classes.index(value)]):
            return self.classes.index(value)
        if not self.growing or len(self.classes) >= self.config.max_classes:
            self.bad["bad"] += 1
            return -1
        self.classes.append(value)
        return len(self.classes) - 1

    def event(self, row: dict[str, Any], code: float) -> None:
        name, ts, x = row["id"], row["ts"], float(row["features"]["x"])
        if name in self.waiting or name in self.done:
            self.counts["duplicate_event"] += 1
            return
        self.events += 1
        self.newest.append(ts)
        scores = self.learner.predict(self.batch([Waiting(name, ts, x, [], None, None)])).scores[0].tolist()
        self.predicted.append((name, scores))
        waiting = Waiting(name, ts, x, scores, self.no_change(), self.usual())
        if self.config.labels is None:
            self.done[name] = math.nan
            if math.isnan(code):
                self.unlabelled += 1
            else:
                self.labels += 1
                self.complete(waiting, code)
        elif name in self.early:
            self.match(waiting, *self.early.pop(name))
        else:
            self.waiting[name] = waiting

    def label(self, name: str, code: float, ts: int) -> None:
        self.labels += 1
        self.newest.append(ts)
        if name in self.waiting:
            self.match(self.waiting.pop(name), code, ts)
            return
        first = self.early[name][0] if name in self.early else self.done.get(name)
        if first is None:
            self.early[name] = (code, ts)
        elif math.isnan(first):
            self.counts["late_label"] += 1
        else:
            self.counts["duplicate_label" if first == code else "conflicting_label"] += 1

    def match(self, event: Waiting, code: float, ts: int) -> None:
        if ts - event.ts > self.config.join.expire_after:
            self.counts["late_label"] += 1
            self.counts["expired_event"] += 1
            self.done[event.name] = math.nan
            self.late.append(event)
        else:
            self.done[event.name] = code
            self.complete(event, code)

    def complete(self, event: Waiting, code: float) -> None:
        """Scored now, learned when its window closes."""
        self.scored.append((event.scores, code))
        self.baseline.append((event.no_change, event.usual, code))
        self.known.append(code)
        event.code = code
        self.window.append(event)
        if len(self.window) == self.config.window.count:
            for row in self.window:
                self.learner.learn(self.batch([row]))
                self.learned.append((row.name, row.code))
            self.window = []

    def expired(self, events: Sequence[Waiting]) -> None:
        if self.config.join.on_expiry == "negative" and not self.regression:
            for event in events:
                self.complete(event, 0)

    def sweep(self, now_ms: int) -> None:
        join = self.config.join
        times = [ts for ts in self.newest if ts <= now_ms + join.max_ahead]
        if not self.newest:
            return
        if times:
            self.watermark = max(self.watermark, *times)
            if self.swept == -math.inf:
                self.swept = self.watermark
        full = len(self.waiting) > join.capacity or len(self.early) > join.capacity
        if not full and not self.watermark - self.swept > join.expire_after // 16:
            return
        self.swept = self.watermark
        limit = self.watermark - join.expire_after
        old = [e for e in self.waiting.values() if e.ts < limit]
        young = [e for e in self.waiting.values() if e.ts >= limit]
        out = young[: self.surplus(len(young))]
        self.counts["expired_event"] += len(old)
        self.counts["evicted_event"] += len(out)
        names = {e.name for e in (*old, *out)}
        gone = [e for e in self.waiting.values() if e.name in names]
        for event in gone:
            del self.waiting[event.name]
            self.done[event.name] = math.nan
        kept = {n: row for n, row in self.early.items() if row[1] >= limit}
        self.counts["expired_label"] += len(self.early) - len(kept)
        surplus = self.surplus(len(kept))
        self.counts["evicted_label"] += surplus
        self.early = dict(list(kept.items())[surplus:])
        self.expired(gone)

    def surplus(self, n: int) -> int:
        capacity = self.config.join.capacity
        return n - (capacity - capacity // 16) if n > capacity else 0

    def forget(self, name: str) -> None:
        self.counts["forgotten"] += 1
        self.counts["forgotten_event"] += self.waiting.pop(name, None) is not None
        self.counts["forgotten_label"] += self.early.pop(name, None) is not None
        self.done.pop(name, None)
        self.window = [e for e in self.window if e.name != name]
        self.learned = [row for row in self.learned if row[0] != name]

    def no_change(self) -> float | None:
        return self.known[-1] if self.known else None

    def usual(self) -> float | None:
        if not self.known:
            return None
        if self.regression:
            return float(np.mean(self.known))
        tally = Counter(self.known)
        return min(tally, key=lambda code: (-tally[code], code))

    def batch(self, rows: Sequence[Waiting]) -> Batch:
        codes = [row.code for row in rows]
        y = np.array(codes) if self.regression or math.isnan(codes[0]) else np.array(codes, dtype=np.int64)
        return Batch(
            objects([row.name for row in rows]),
            np.array([row.ts for row in rows]),
            np.array([[row.x] for row in rows]),
            np.empty((len(rows), 0), dtype=object),
            y,
            len(self.classes),
        )
