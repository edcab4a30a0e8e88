"""A trainer's troubles: what passes is waited out, what does not is said in words, and nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.config import TrainerConfig
from core.errors import ConfigError, LogUnavailable, OffsetOutOfRange, StoreUnavailable
from core.records import OutRecord
from snapshots.open_store import open_store
from stream.driver import patience
from stream.log.memory_log import MemoryLog
from tests.stream.fold_harness import parts_bytes
from tests.stream.trainer_harness import (
    MODEL,
    Bench,
    Failing,
    Life,
    Watch,
    essence,
    fill,
    once,
    small_config,
    traffic,
    with_port,
)

ROWS = traffic(60)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(patience, "LONGEST_PAUSE_S", 0.001)


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done, answer lost"])
@pytest.mark.parametrize("port", ["journal", "snapshots", "commands", "ownership"])
def test_a_store_that_is_away_now_and_then(port: str, after: bool) -> None:
    quiet = Bench(MemoryLog(), open_store("memory://"), small_config())
    fill(quiet.log, ROWS)
    quiet.train()
    bench = Bench(MemoryLog(), open_store("memory://"), small_config())
    fill(bench.log, ROWS)
    sound = bench.store
    failing = Failing(getattr(sound, port), lambda name, n: n % 3 == 2, StoreUnavailable("away"), after=after)
    bench.store = with_port(sound, port, failing)
    watch = bench.train()
    assert watch.troubles or not any(n >= 2 for n in failing.calls.values())
    bench.store = sound
    assert parts_bytes(bench.rebuilt()) == parts_bytes(bench.from_the_log())
    assert essence(bench.rebuilt()) == essence(quiet.rebuilt())


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done, answer lost"])
def test_a_log_that_is_away_now_and_then(after: bool) -> None:
    quiet = Bench(MemoryLog(), open_store("memory://"), small_config())
    fill(quiet.log, ROWS)
    quiet.train()
    bench = Bench(MemoryLog(), open_store("memory://"), small_config())
    fill(bench.log, ROWS)
    log = Failing(bench.log, lambda name, n: n % 4 == 2, LogUnavailable("away"), after=after)
    watch = bench.train(log=log)
    assert watch.troubles
    assert essence(bench.rebuilt()) == essence(quiet.rebuilt())
    for topic in ("deadletter", "predictions"):
        values = sorted(value or b"" for value, _ in once(bench.out(topic)))
        assert values == sorted(value or b"" for value, _ in once(quiet.out(topic)))


def test_a_stop_while_effects_cannot_be_delivered_leaves_them_to_the_next_one() -> None:
    bench = Bench(MemoryLog(), open_store("memory://"), small_config())
    fill(bench.log, traffic(8))
    log = Failing(bench.log, lambda name, n: name == "append", LogUnavailable("full"))
    watch = Watch()
    watch.on_step = lambda fold: watch.stop()
    bench.train(watch=watch, log=log)
    assert watch.fold is not None
    assert bench.out("predictions") == []
    assert bench.store.snapshots.versions(MODEL) == []
    bench.train()
    assert len(once(bench.out("predictions"))) == 8


def test_a_damaged_newest_version_gives_way_to_the_one_before() -> None:
    bench = Bench(MemoryLog(), open_store("memory://"), small_config())
    fill(bench.log, ROWS)
    bench.train()
    state = bench.store.snapshots._state.model(MODEL)  # type: ignore[attr-defined]
    newest, before = sorted(state.manifests)[-1:-3:-1]
    want = parts_bytes(bench.rebuilt())
    damaged = bytearray(state.manifests[newest])
    damaged[len(damaged) // 2] ^= 1
    state.manifests[newest] = bytes(damaged)
    assert parts_bytes(bench.rebuilt()) == want
    more = traffic(10, 60)
    for record in more:
        bench.log.append(
            record.lane.topic,
            [OutRecord(record.value, record.key, record.at_ms, partition=record.lane.partition)],
        )
    watch = bench.train()
    assert watch.replayed > 0
    assert watch.published_[0] == newest + 1
    assert bench.store.snapshots.load(MODEL, newest + 1).manifest["parent"] == before
    assert watch.fold is not None
    assert parts_bytes(bench.rebuilt()) == parts_bytes(watch.fold)
    assert newest not in bench.store.snapshots.versions(MODEL)  # nobody can load it


CHANGES: dict[str, Mapping[str, Any]] = {
    "features": {"features": {"x": "float", "y": "float"}},
    "task": {"task": "regression"},
    "learner": {"learner": {"kind": "linear", "lr": 0.5}},
    "labels": {"labels": None},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_model_is_refused_in_words(what: str) -> None:
    bench = Bench(MemoryLog(), open_store("memory://"), small_config())
    fill(bench.log, ROWS)
    bench.train()
    bench.config = small_config(**CHANGES[what])
    with pytest.raises(
        ConfigError, match=rf"models\.m: .*{what}.* not as in version \d+; give .* another name"
    ):
        bench.train()


@pytest.mark.parametrize(
    "change",
    [
        {"window": {"count": 1}},
        {"window": {"count": 2}},
        {"window": {"count": 7}},
        {"drift": {"detectors": ["page_hinkley", "adwin"]}},
        {"replay": {"capacity": 5}},
        {"join": {"capacity": 3, "expire_after": 50}},
    ],
    ids=str,
)
def test_settings_that_may_change_between_two_starts(change: dict[str, Any]) -> None:
    bench = Bench(MemoryLog(), open_store("memory://"), small_config(window={"count": 6}))
    fill(bench.log, traffic(50))
    first = bench.train()
    assert first.fold is not None
    assert len(first.fold.window.open) > 1
    bench.config = small_config(**change)
    for r in traffic(10, 50):
        bench.log.append(r.lane.topic, [OutRecord(r.value, r.key, r.at_ms, partition=r.lane.partition)])
    watch = bench.train()
    assert watch.fold is not None
    fold = watch.fold
    assert fold.learned + len(fold.window.open) >= fold.examples - fold.join.counts["forgotten"]
    assert len(fold.window.open) < bench.config.window.count
    assert len(fold.buffer) <= bench.config.replay.capacity


def test_records_that_retention_took_are_told_with_offsets() -> None:
    bench = Bench(MemoryLog(retention_records=120), open_store("memory://"), small_config())
    fill(bench.log, ROWS)
    bench.train()
    for i in range(500):
        bench.log.append("e", [OutRecord(b"x %d" % i, timestamp_ms=9_000 + i, partition=1)])
    with pytest.raises(
        OffsetOutOfRange, match=r"e/1: the next record to learn is \d+, the log has \d+ up to"
    ):
        bench.train()


def test_a_topic_made_anew_is_told() -> None:
    bench = Bench(MemoryLog(), open_store("memory://"), small_config())
    fill(bench.log, ROWS)
    bench.train()
    fresh = MemoryLog()
    fill(fresh, ROWS[:3])
    bench.log = fresh
    with pytest.raises(OffsetOutOfRange, match="made anew"):
        bench.train()


def test_new_partitions_are_read_from_their_beginning() -> None:
    bench = Bench(MemoryLog(), open_store("memory://"), small_config())
    fill(bench.log, ROWS)
    bench.train()
    grown = MemoryLog()
    fill(grown, ROWS, partitions=5)
    extra = [replace(r, lane=r.lane._replace(partition=4)) for r in traffic(7, 200) if r.lane.topic == "e"]
    fill(grown, extra)
    for topic in ("deadletter", "alerts", "predictions"):
        grown.create(f"out.{topic}")
    bench.log = grown
    before = bench.rebuilt().events
    watch = bench.train()
    assert watch.fold is not None
    assert watch.fold.events == before + 7


def test_a_long_recovery_keeps_the_lease() -> None:
    bench = Bench(MemoryLog(), open_store("memory://"), small_config(snapshot={"every": 10**9}))
    bench.settings = TrainerConfig.model_validate({"max_turn_records": 1, "poll": 1, "lease": 90})
    fill(bench.log, ROWS)
    bench.train(Life(dies_at=150))
    sound = bench.store
    ownership = Failing(sound.ownership, lambda name, n: False, StoreUnavailable("away"))
    bench.store = with_port(sound, "ownership", ownership)
    watch = Watch()
    renewed: list[int] = []
    watch.on_owned = lambda: renewed.append(ownership.calls.get("renew", 0))
    bench.train(watch=watch)
    assert watch.replayed > 20
    assert renewed[0] > 1
