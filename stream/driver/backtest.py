"""The same fold as the trainer's, over recorded records: a prequential report."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.clock import Clock
from core.config import ModelConfig
from core.plain import IntArray
from core.records import Lane, PlainRecords, Turn
from stream.driver.reading import LaneReader
from stream.driver.recovery import step
from stream.fold.fold import Fold
from stream.log.memory_log import MemoryLog

# Of one topic's next records: values, keys, timestamps in milliseconds.
Columns = tuple[Sequence[bytes | None], Sequence[bytes | None], IntArray]


@dataclass(slots=True)
class BacktestReport:
    """What happened, and how good the model was at each moment of it."""

    rows: int = 0
    events: int = 0
    labels: int = 0
    examples: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)
    baselines: dict[str, float | None] = field(default_factory=dict)
    drifts: list[dict[str, Any]] = field(default_factory=list)
    retrainings: int = 0
    seconds: float = 0.0
    events_per_s: float = 0.0
    peak_rss_mb: float = 0.0


class Backtest:
    """Feeds records, already in the order of their times, through one model's fold."""

    def __init__(self, config: ModelConfig, clock: Clock) -> None:
        self.config = config
        self.fold = Fold(config)
        self._clock = clock
        self._reader = LaneReader(MemoryLog(), config, limit=1)
        self._offsets: dict[Lane, int] = {}
        self._report = BacktestReport()

    def feed(self, topics: Mapping[str, Columns]) -> None:
        """One turn: these records of the model's topics."""
        inputs = {}
        for topic, (values, keys, timestamps_ms) in topics.items():
            if not values:
                continue
            lane = Lane(topic, 0)
            start = self._offsets.get(lane, 0)
            stop = start + len(values)
            records = PlainRecords(np.arange(start, stop), list(values), timestamps_ms, list(keys), stop)
            inputs[lane] = self._reader.decode(lane, records)
            self._offsets[lane] = stop
        ranges = {lane: (int(s.records.offsets[0]), s.records.next_offset) for lane, s in inputs.items()}
        now_ms = max((int(s.records.timestamps_ms.max()) for s in inputs.values()), default=0)
        turn = Turn(self.fold.turn + 1, ranges, now_ms)
        _, effects = step(self.fold, self.config, turn, inputs)
        events = topics.get(self.config.events)
        self._report.rows += 0 if events is None else len(events[0])
        self._report.drifts.extend(effects.drifts)

    def run(
        self, chunks: Iterable[Mapping[str, Columns]], progress: Callable[[int, float | None], None]
    ) -> BacktestReport:
        """Feeds everything; `progress` is told rows so far and the accuracy (or error) of late."""
        started_s = self._clock.monotonic_s()
        for chunk in chunks:
            self.feed(chunk)
            progress(self._report.rows, self.fold.contest.served.recent)
        return self.report(self._clock.monotonic_s() - started_s)

    def report(self, seconds: float) -> BacktestReport:
        """The report so far, given how long it took."""
        fold, report = self.fold, self._report
        report.events, report.labels, report.examples = fold.events, fold.labels, fold.examples
        report.dead_letters = dict(sorted(fold.dead_letters.items()))
        report.metrics = fold.contest.served.report()
        report.baselines = fold.baselines.report()
        report.retrainings = fold.contest.retrainings
        report.seconds = round(seconds, 3)
        report.events_per_s = round(report.rows / seconds, 1) if seconds > 0 else 0.0
        report.peak_rss_mb = round(peak_rss_mb(), 1)
        return report


def peak_rss_mb() -> float:
    """The most memory this process has held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024) if sys.platform == "darwin" else peak / 1024
