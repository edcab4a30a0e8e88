"""Challengers, promotions and restarts on the bundled flights: a fold made from its bytes goes on alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cli.demo_data import demo_model, demo_rows
from core.config import ModelConfig
from core.records import Lane, PlainRecords, Turn
from stream.driver.reading import LaneReader
from stream.driver.recovery import step
from stream.fold.effects import Effects
from stream.fold.fold import Fold
from stream.fold.inputs import LaneInput
from stream.log.memory_log import MemoryLog
from tests.stream.fold_harness import lost, parts_bytes, read_parts

ROWS, TURNS = 12_000, 24
SENSITIVE = {"page_hinkley": {"min_instances": 30, "threshold": 3.0, "delta": 0.0}}


def flights(**changes: Any) -> ModelConfig:
    base = demo_model().model_dump()
    changed = {
        "window": {"count": 7},
        "drift": {"detectors": [SENSITIVE, "adwin"], "cooldown": 500},
        "rollout": {
            "min_examples": 50, "canary_examples": 100, "alpha": 0.9, "max_age": 3_000, "max_challengers": 2
        },
        "replay": {"capacity": 300},
    }  # fmt: skip
    return ModelConfig.model_validate({**base, **changed, **changes})


def inputs_of(config: ModelConfig) -> list[tuple[Turn, Mapping[Lane, LaneInput]]]:
    """The flights in turns; now and then with an order."""
    reader = LaneReader(MemoryLog(), config, limit=1)
    chunks = list(demo_rows(ROWS, config).chunks())
    turns: list[tuple[Turn, Mapping[Lane, LaneInput]]] = []
    at: dict[Lane, int] = {}
    for chunk in chunks:
        sides = [(chunk.events_topic, chunk.events)]
        if chunk.labels_topic is not None:
            sides.append((chunk.labels_topic, chunk.labels))
        pieces = max(1, TURNS // len(chunks))
        stamps = np.concatenate([side.timestamps_ms for _, side in sides])
        edges = np.quantile(stamps, np.linspace(0, 1, pieces + 1)[1:-1])
        cuts = {
            topic: [0, *np.searchsorted(s.timestamps_ms, edges).tolist(), len(s.values)] for topic, s in sides
        }
        for i in range(pieces):
            sources, ranges = {}, {}
            for topic, side in sides:
                own = slice(*cuts[topic][i : i + 2])
                lane, n = Lane(topic, 0), own.stop - own.start
                if not n:
                    continue
                start = at.get(lane, 0)
                at[lane] = start + n
                ranges[lane] = (start, start + n)
                read = PlainRecords(
                    np.arange(start, start + n),
                    list(side.values[own]),
                    side.timestamps_ms[own],
                    list(side.keys[own]),
                    start + n,
                )
                sources[lane] = reader.decode(lane, read)
            now_ms = max(int(s.records.timestamps_ms.max()) for s in sources.values())
            turns.append((Turn(len(turns) + 1, ranges, now_ms, orders(len(turns))), sources))
    return turns


def orders(turn: int) -> list[dict[str, Any]]:
    order = {7: "promote", 11: "rollback", 15: "promote", 17: "drop"}.get(turn)
    return [] if order is None else [{"id": f"o{turn}", "do": order}]


@pytest.mark.parametrize("learner", ["linear", "river"])
@pytest.mark.parametrize("on_drift", ["challenger", "reset"])
def test_a_restart_after_any_turn_changes_nothing(learner: str, on_drift: str) -> None:
    config = flights(
        learner={"kind": "linear"}
        if learner == "linear"
        else {"kind": "river", "steps": ["preprocessing.StandardScaler", "linear_model.LogisticRegression"]},
        features={"distance": "float", "hour": "float", "month": "float"},
        drift={"detectors": [SENSITIVE, "adwin"], "cooldown": 500, "on_drift": on_drift},
    )
    turns = inputs_of(config)
    assert len(turns) >= 20
    whole, restarted = Fold(config), Fold(config)
    kinds: set[str] = set()
    for number, (turn, sources) in enumerate(turns):
        _, effects = step(whole, config, turn, sources)
        _, again = step(restarted, config, turn, sources)
        kinds |= {str(alert["kind"]) for alert in effects.alerts}
        same_effects(effects, again)
        parts = parts_bytes(whole)
        assert parts_bytes(restarted) == parts
        if number % 3 == 0:
            restarted = Fold.from_parts(config, read_parts(parts))
            assert parts_bytes(restarted) == parts
        assert set(whole.pending.scores) <= set(whole.contest.describe()) | {""}
        assert lost(whole) == (0, 0)
    assert kinds >= {"drift", "challenge", "promote"}
    assert whole.contest.retrainings > 1


def same_effects(one: Effects, other: Effects) -> None:
    assert one.alerts == other.alerts
    assert one.drifts == other.drifts
    assert [p.scores.tolist() for p in one.predicted] == [p.scores.tolist() for p in other.predicted]
    assert [(place, str(e)) for place, e in one.dead_letters] == [
        (place, str(e)) for place, e in other.dead_letters
    ]
