"""Operators' orders: in the journal, obeyed once, answered in the alerts topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from core.config import ModelConfig
from core.errors import StoreUnavailable
from snapshots.open_store import open_store
from stream.driver import patience
from stream.fold.fold import Fold
from stream.log.memory_log import MemoryLog
from stream.log.open_log import open_log
from tests.stream.fold_harness import parts_bytes
from tests.stream.trainer_harness import (
    MODEL,
    Bench,
    Failing,
    Watch,
    fill,
    once,
    small_config,
    traffic,
    with_port,
)

ROWS = traffic(60)


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "memory":
        log, store = MemoryLog(), open_store("memory://")
    else:
        url = request.getfixturevalue("redis_url")
        log, store = open_log(url), open_store(url)
    yield Bench(log, store, small_config())
    log.close()
    store.close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(patience, "LONGEST_PAUSE_S", 0.001)


def alerts(bench: Bench) -> list[dict[str, Any]]:
    return [msgspec.json.decode(value or b"") for value, _ in once(bench.out("alerts"))]


def test_commands_are_answered(bench: Bench) -> None:
    fill(bench.log, ROWS)
    for i, order in enumerate(["rollback", "promote", "dance"]):
        bench.store.commands.push(MODEL, {"id": f"c{i}", "do": order, "lineage": "L9" if i == 1 else ""})
    bench.train()
    told = alerts(bench)
    assert [(a["command"], a["ok"], a["kind"]) for a in told] == [
        ("c0", False, "refuse"),
        ("c1", False, "refuse"),
        ("c2", False, "refuse"),
    ]
    assert "no champion" in told[0]["detail"]
    assert "L9" in told[1]["detail"]
    assert "dance" in told[2]["detail"]
    assert bench.store.commands.pending(MODEL) == []


def drifting(**changes: Any) -> ModelConfig:
    """Every few examples an alarm, and so a challenger."""
    sensitive = {"page_hinkley": {"min_instances": 5, "threshold": 0.5, "delta": 0.0}}
    base = {"drift": {"detectors": [sensitive], "cooldown": 1}, "rollout": {"min_examples": 10_000}}
    return small_config(**{**base, **changes})


def test_promotion_and_rollback_by_order(bench: Bench) -> None:
    bench.config = drifting()
    fill(bench.log, ROWS)
    watch = Watch()
    asked: list[str] = []

    def order(fold: Fold) -> None:
        if not asked and fold.contest.describe().keys() > {"L1"}:
            asked.append("promote")
            bench.store.commands.push(MODEL, {"id": "p", "do": "promote"})
        elif asked == ["promote"] and fold.contest.champion.name != "L1":
            asked.append("rollback")
            bench.store.commands.push(MODEL, {"id": "r", "do": "rollback"})

    watch.on_step = order
    watch = bench.train(watch=watch)
    assert asked == ["promote", "rollback"]
    told = {a["command"]: a for a in alerts(bench) if "command" in a}
    assert told["p"]["kind"] == "promote"
    assert told["p"]["ok"] is True
    assert told["r"]["kind"] == "rollback"
    assert told["r"]["ok"] is True
    assert watch.fold is not None
    assert watch.fold.contest.champion.name == "L1"
    names = set(watch.fold.contest.describe())
    assert set(watch.fold.pending.scores) <= names | {""}
    rollout = bench.store.snapshots.rollout(MODEL)
    assert rollout.champion is not None
    assert rollout.champion.lineage == "L1"
    assert parts_bytes(bench.rebuilt()) == parts_bytes(bench.from_the_log())


def test_a_command_whose_queue_was_not_told_is_obeyed_once() -> None:
    bench = Bench(MemoryLog(), open_store("memory://"), drifting())
    fill(bench.log, ROWS)
    bench.train()
    assert bench.rebuilt().contest.describe().keys() > {"L1"}
    sound = bench.store
    sound.commands.push(MODEL, {"id": "p", "do": "promote"})
    bench.store = with_port(
        sound, "commands", Failing(sound.commands, lambda name, n: name == "done", StoreUnavailable("away"))
    )
    watch = Watch()
    watch.on_trouble = lambda error: watch.stop()
    bench.train(watch=watch)
    bench.store = sound
    assert len(sound.commands.pending(MODEL)) == 1
    bench.train()
    assert sound.commands.pending(MODEL) == []
    told = [a for a in alerts(bench) if a.get("command") == "p"]
    assert [(a["kind"], a["ok"]) for a in told] == [("promote", True)]
