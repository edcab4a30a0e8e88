"""Shadows see what is answered, and harm nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from core.batch import Batch
from core.plain import objects
from learners.registry import build
from serving.metrics import ServingMetrics
from serving.mirror import Mirror

GOOD = {"distance": 1400.0, "dep": 7, "carrier": "UA", "wind": 3.5}
Serve = Callable[..., Any]


class Odd:
    """A shadow's learner: fails, waits, or notes what it sees."""

    def __init__(self, inner: Any, gate: threading.Event | None, fails_at: str | None) -> None:
        self.inner, self.gate, self.fails_at = inner, gate, fails_at
        self.ids: list[str] = []

    def predict(self, batch: Batch) -> Any:
        ids = list(batch.ids)
        if ids == ["warm"]:
            return self.inner.predict(batch)
        if self.gate is not None:
            assert self.gate.wait(10.0)
        if self.fails_at == "*" or self.fails_at in ids:
            raise RuntimeError("a bug of the shadow's")
        self.ids += ids
        return self.inner.predict(batch)


def serving_with(world: Any, serve: Serve, **odd: Any) -> tuple[Any, list[Odd]]:
    """A server whose lineage "b" is an odd shadow."""
    shadow = world.train(1)
    marked, made = shadow.state()["weights"], []

    def build_some(*args: Any) -> Any:
        learner = build(*args)
        if not np.array_equal(args[4]["weights"], marked):
            return learner
        made.append(Odd(learner, odd.get("gate"), odd.get("fails_at")))
        return made[-1]

    version = world.publish({"a": world.train(0), "b": shadow})
    world.assign(("a", version), shadows=[("b", version)])
    running = serve(world.store, build_learner=build_some)
    running.at_revision(1)
    return running, made


def shadow_count(running: Any, *outcomes: str) -> float:
    return sum(
        running.metric("riverrun_shadow_predictions_total", model="flights", outcome=outcome)
        for outcome in outcomes
    )


def test_every_answered_row_is_mirrored_and_compared(world: Any, serve: Serve, wait: Any) -> None:
    running, made = serving_with(world, serve)
    for i in range(20):
        assert (
            running.predict({"id": f"e{i}", "features": {**GOOD, "dep": i - 10}}).json()["role"] == "champion"
        )
    instances = [{"id": f"m{i}", "features": GOOD} for i in range(30)]
    running.predict({"instances": instances})
    running.predict({"id": "bad", "features": {}})
    wait(lambda: shadow_count(running, "agreed", "differed") == 50)
    assert made[0].ids == [f"e{i}" for i in range(20)] + [f"m{i}" for i in range(30)]
    champion, shadow = world.train(0), world.train(1)
    agreed = sum(
        champion.predict(world.row(row)).scores.argmax() == shadow.predict(world.row(row)).scores.argmax()
        for row in [{**GOOD, "dep": i - 10} for i in range(20)] + [GOOD] * 30
    )
    assert shadow_count(running, "agreed") == agreed


def test_a_failing_shadow_is_counted_row_by_row_and_harms_nobody(world: Any, serve: Serve, wait: Any) -> None:
    running, _ = serving_with(world, serve, fails_at="e7")
    for i in range(20):
        assert running.predict({"id": f"e{i}", "features": GOOD}).status_code == 200
    wait(lambda: shadow_count(running, "agreed", "differed", "failed") == 20)
    assert shadow_count(running, "failed") == 1


def test_a_shadow_that_hangs_delays_no_answer_and_its_rows_are_dropped(
    world: Any, serve: Serve, wait: Any
) -> None:
    gate = threading.Event()
    running, _ = serving_with(world, serve, gate=gate)
    try:
        many = {"instances": [{"features": GOOD}] * 300}
        for _ in range(30):
            assert running.predict(many).status_code == 200
        assert shadow_count(running, "dropped") >= 9_000 - 2 * 4_096
    finally:
        gate.set()
    wait(lambda: shadow_count(running, "agreed", "differed", "dropped") == 9_000)


def test_the_shadow_of_a_regression_is_counted_as_answered(
    store: Any, serve: Serve, make_world: Any, wait: Any
) -> None:
    world = make_world(store, task="regression", classes=[])
    version = world.publish({"a": world.train(0), "b": world.train(1)})
    world.assign(("a", version), shadows=[("b", version)])
    running = serve(store)
    running.at_revision(1)
    running.predict({"features": GOOD})
    wait(lambda: shadow_count(running, "answered") == 1)


@pytest.mark.parametrize("capacity", [1, 7, 64])
def test_the_queue_never_holds_more_than_its_capacity(world: Any, capacity: int) -> None:
    metrics = ServingMetrics()
    mirror = Mirror(metrics, capacity)  # not started: nothing is taken off

    class Stub:
        model, shadows = "flights", ("b",)

    batch = Batch(objects(["e"] * 3), np.zeros(3, np.int64), np.zeros((3, 0)), np.empty((3, 0), object))
    for _ in range(100):
        mirror.put(Stub, batch, [[0.5, 0.5]] * 3)  # type: ignore[arg-type]
    kept = capacity // 3 * 3
    assert metrics.dropped["flights"] == 300 - kept
    mirror.close()
