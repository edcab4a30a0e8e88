"""Sending a file: everything in order, at the pace asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cli.demo_data import demo_rows
from cli.file_events import FileChunk, FileEvents
from cli.produce import Sent, produce
from core.clock import ManualClock
from core.config import ModelConfig
from core.errors import ConfigError, LogUnavailable
from core.records import Lane, OutRecord
from stream.log.memory_log import MemoryLog


class TimedLog(MemoryLog):
    """Remembers when each record came."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self.arrivals: list[tuple[float, str, OutRecord]] = []
        for topic in ("flights.events", "flights.labels", "e"):
            self.create(topic)

    def append(self, topic: str, records: Sequence[OutRecord]) -> None:
        super().append(topic, records)
        self.arrivals += [(self._clock.monotonic_s(), topic, r) for r in records]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def simple(folder: Path, times_ms: list[int]) -> FileEvents:
    path = folder / "t.csv"
    path.write_text("at,x,late\n" + "".join(f"{t},1,1\n" for t in times_ms))
    config = ModelConfig.model_validate(
        {"task": "binary", "events": "e", "label": "late", "features": {"x": "float"}, "file": {"ts": "at"}}
    )
    return FileEvents(path, "m", config)


def test_every_record_in_its_topics_order(clock: ManualClock) -> None:
    log = TimedLog(clock)
    source = demo_rows(20_000)
    sent = produce(log, source.chunks(), None, None, None, clock)
    expected = [r for chunk in source.chunks() for r in chunk.records()]
    for topic in ("flights.events", "flights.labels"):
        assert [r for _, t, r in log.arrivals if t == topic] == [r for t, r in expected if t == topic]
        (lane,) = log.lanes(topic)
        assert log.bounds(Lane(topic, lane.partition))[1] == sum(t == topic for t, _ in expected)
    assert (sent.events, sent.records, sent.interrupted) == (20_000, len(expected), False)


def test_a_rate(tmp_path: Path, clock: ManualClock) -> None:
    log = TimedLog(clock)
    produce(log, simple(tmp_path, list(range(1_000))).chunks(), 100.0, None, None, clock, clock.advance)
    assert clock.monotonic_s() == pytest.approx(9.95, abs=0.1)
    for n, (at, _, _) in enumerate(log.arrivals):
        assert at == pytest.approx(n / 100, abs=0.051)


def test_a_rate_beyond_one_batch_a_tick(tmp_path: Path, clock: ManualClock) -> None:
    log = TimedLog(clock)
    produce(log, simple(tmp_path, list(range(20_000))).chunks(), 100_000.0, None, None, clock, clock.advance)
    assert clock.monotonic_s() == pytest.approx(0.2, abs=0.06)
    assert len(log.arrivals) == 20_000


@pytest.mark.parametrize("speed", [1.0, 60.0])
def test_its_own_pace(tmp_path: Path, clock: ManualClock, speed: float) -> None:
    log = TimedLog(clock)
    times = [1_000, 1_000, 2_000, 31_000, 31_010, 100_000]
    sent = produce(log, simple(tmp_path, times).chunks(), None, speed, None, clock, clock.advance)
    for (at, _, record), due in zip(log.arrivals, times, strict=True):
        assert record.timestamp_ms == due
        assert at == pytest.approx((due - 1_000) / 1_000 / speed, abs=0.051)
    assert sent.seconds == pytest.approx(99 / speed, abs=0.051)


def test_progress_is_told_while_waiting(tmp_path: Path, clock: ManualClock) -> None:
    told: list[int] = []
    produce(
        TimedLog(clock),
        simple(tmp_path, [0, 10_000]).chunks(),
        None,
        1.0,
        lambda s: told.append(s.events),
        clock,
        clock.advance,
    )
    assert told[0] == 1
    assert told[-1] == 2
    assert len(told) > 15


@pytest.mark.parametrize(("rate", "speed"), [(0.0, None), (-1.0, None), (None, float("nan")), (1.0, 1.0)])
def test_a_pace_that_is_none(clock: ManualClock, rate: float | None, speed: float | None) -> None:
    with pytest.raises(ConfigError):
        produce(TimedLog(clock), [], rate, speed, None, clock)


def interrupting_after(n: int, then: Callable[[], None]) -> Callable[[Sent], None]:
    def tell(sent: Sent) -> None:
        if sent.records >= n:
            then()

    return tell


def test_an_interrupt_keeps_the_count(clock: ManualClock) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    log = TimedLog(clock)
    sent = produce(log, demo_rows(20_000).chunks(), None, None, interrupting_after(5_000, interrupt), clock)
    assert sent.interrupted
    assert 5_000 <= sent.records == len(log.arrivals) < 20_000


def test_an_interrupt_while_reading(clock: ManualClock) -> None:
    def chunks() -> Iterator[FileChunk]:
        yield from demo_rows(10).chunks()
        raise KeyboardInterrupt

    sent = produce(TimedLog(clock), chunks(), None, None, None, clock)
    assert (sent.interrupted, sent.events) == (True, 10)


def test_a_failing_log_is_not_hidden(clock: ManualClock) -> None:
    class Failing(TimedLog):
        def append(self, topic: str, records: Sequence[OutRecord]) -> None:
            raise LogUnavailable("down")

    with pytest.raises(LogUnavailable):
        produce(Failing(clock), demo_rows(10).chunks(), None, None, None, clock)
