"""Sends a file's records to a log, as fast as it takes them, at a rate, or at the pace of their own times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from cli.file_events import FileChunk
from cli.files.wire import WireColumns
from core.clock import Clock
from core.errors import ConfigError
from core.plain import FloatArray
from core.records import OutRecord
from stream.log.log import Log

_BATCH = 2_048  # records handed to the log at once
_TICK_S = 0.05  # a pace is kept to about this
_LONGEST_SLEEP_S = 0.5  # so that progress is told while nothing is due


@dataclass(slots=True)
class Sent:
    """What the log has taken so far."""

    events: int = 0
    labels: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def records(self) -> int:
        return self.events + self.labels


def produce(
    log: Log,
    chunks: Iterable[FileChunk],
    rate: float | None,
    speed: float | None,
    on_progress: Callable[[Sent], None] | None,
    clock: Clock,
    sleep: Callable[[float], None] = time.sleep,
) -> Sent:
    """Appends every record, with its own timestamp, in the file's order: a record is in the log before
    any later one of its topic, and events before the labels of one batch.

    `rate`: at most so many records a second. `speed`: a record is sent when its time has come, counted
    from the first record's time and so many times as fast (1: as it happened). `on_progress` is called
    after each batch and while waiting. An interrupt (Ctrl-C) ends it between batches or in one: the count
    is then of what the log surely has. Raises ConfigError for a pace that is none, and what the log raises.
    """
    if rate is not None and speed is not None:
        raise ConfigError("a rate or a speed, not both")
    for name, pace in (("rate", rate), ("speed", speed)):
        if pace is not None and not 0 < pace < float("inf"):
            raise ConfigError(f"{name}: a number above 0, not {pace}")
    sender = _Sender(log, rate, speed, on_progress or _silent, clock, sleep)
    try:
        for chunk in chunks:
            sender.send(chunk)
    except KeyboardInterrupt:
        sender.sent.interrupted = True
    sender.sent.seconds = clock.monotonic_s() - sender.started_s
    return sender.sent


def _silent(sent: Sent) -> None:
    """Tells nobody."""


class _Sender:
    def __init__(
        self,
        log: Log,
        rate: float | None,
        speed: float | None,
        on_progress: Callable[[Sent], None],
        clock: Clock,
        sleep: Callable[[float], None],
    ) -> None:
        self._log = log
        self._rate, self._speed = rate, speed
        self._tell = on_progress
        self._clock = clock
        self._sleep = sleep
        self._first_ms: int | None = None
        self._passed = 0  # records of earlier chunks
        self.sent = Sent()
        self.started_s = clock.monotonic_s()

    def send(self, chunk: FileChunk) -> None:
        due_s = self._due(chunk)
        start = 0
        while start < len(chunk):
            stop = min(start + _BATCH, len(chunk))
            if due_s is not None:
                self._wait(float(due_s[start]))
                late_s = max(self._elapsed(), float(due_s[start])) + _TICK_S
                stop = min(stop, max(start + 1, int(np.searchsorted(due_s, late_s, side="right"))))
            self._append(chunk, start, stop)
            start = stop
        self._passed += len(chunk)

    def _due(self, chunk: FileChunk) -> FloatArray | None:
        """When each record may go, in seconds from the start."""
        if self._rate is not None:
            return (self._passed + np.arange(len(chunk))) / self._rate
        if self._speed is None or not len(chunk):
            return None
        times = chunk.timestamps_ms
        if self._first_ms is None:
            self._first_ms = int(times[0])
        return (times - self._first_ms) / (1_000 * self._speed)

    def _elapsed(self) -> float:
        return self._clock.monotonic_s() - self.started_s

    def _wait(self, until_s: float) -> None:
        while (left := until_s - self._elapsed()) > 0:
            self._sleep(min(left, _LONGEST_SLEEP_S))
            self._progress()

    def _append(self, chunk: FileChunk, start: int, stop: int) -> None:
        labels_before, n_labels = int(chunk.order[:start].sum()), int(chunk.order[start:stop].sum())
        events_before, n_events = start - labels_before, stop - start - n_labels
        if n_events:
            columns = chunk.events
            self._log.append(chunk.events_topic, _records(columns, events_before, n_events))
            self.sent.events += n_events
        if n_labels and chunk.labels_topic is not None:
            self._log.append(chunk.labels_topic, _records(chunk.labels, labels_before, n_labels))
            self.sent.labels += n_labels
        self._progress()

    def _progress(self) -> None:
        self.sent.seconds = self._elapsed()
        self._tell(self.sent)


def _records(columns: WireColumns, start: int, count: int) -> list[OutRecord]:
    part = slice(start, start + count)
    times = columns.timestamps_ms[part].tolist()
    return list(map(OutRecord, columns.values[part], columns.keys[part], times))
