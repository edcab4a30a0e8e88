"""Kinds, factories, and what a wrong setting is told."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from core.config import LearnerConfig
from core.errors import ConfigError, CorruptSnapshot
from core.schema import Schema, Task, parse_schema
from learners.linear_learner import LinearLearner
from learners.registry import build, check, warm_up

FLOATS = {"a": "float", "b": "float"}


def linear_problems(features: Any = None, **settings: Any) -> str:
    return "\n".join(
        check(LearnerConfig(kind="linear", **settings), parse_schema(features or FLOATS), "binary")
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": -1}, "learner.lr: a number from 0 on, not -1"),
        ({"lr": "fast"}, "learner.lr"),
        ({"lr": True}, "learner.lr"),
        ({"l2": float("nan")}, "learner.l2"),
        ({"l2": 100.0}, "learner.l2: below 1 / lr"),
        ({"scale": 1}, "learner.scale: true or false"),
        ({"max_categories": 1.5}, "learner.max_categories"),
        ({"learning_rate": 0.1}, "learner.learning_rate: unknown setting; a linear learner has lr"),
    ],
)
def test_settings_of_the_linear_learner(settings: dict[str, Any], words: str) -> None:
    assert words in linear_problems(**settings)
    with pytest.raises(ConfigError, match="learner"):
        build(LearnerConfig(kind="linear", **settings), parse_schema(FLOATS), "binary", 0)


def test_the_linear_learner_needs_typed_features() -> None:
    assert 'name them instead of features = "any"' in linear_problems("any")
    assert "give x, z one of float, int, bool, category" in linear_problems(
        {"a": "float", "x": "any", "z": "any?"}
    )
    assert linear_problems() == ""


@pytest.mark.parametrize(
    "kind", ["forest", "", "River", "no_such_module:make", "learners.registry:nothing", ":", "math:pi"]
)
def test_unknown_kinds(kind: str) -> None:
    schema = parse_schema(FLOATS)
    assert len(check(LearnerConfig(kind=kind), schema, "binary")) == 1
    with pytest.raises(ConfigError, match=r"learner\.kind"):
        build(LearnerConfig(kind=kind), schema, "binary", 0)


def test_a_factory_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("plugged_in")
    calls: list[Any] = []

    def make(settings: dict[str, Any], schema: Schema, task: Task, seed: int, state: Any) -> LinearLearner:
        calls.append((settings, schema, task, seed, state))
        return LinearLearner({}, schema, task, state)

    module.make = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plugged_in", module)
    schema = parse_schema(FLOATS)
    config = LearnerConfig(kind="plugged_in:make", depth=3)
    assert check(config, schema, "binary") == []
    assert isinstance(build(config, schema, "binary", 9), LinearLearner)
    assert calls == [({"depth": 3}, schema, "binary", 9, None)]


@pytest.mark.parametrize("kind", ["linear", "river"])
def test_a_state_of_something_else_is_refused(kind: str, make_rows: Any, numbers: Schema) -> None:
    settings: dict[str, Any] = {"steps": ["naive_bayes.GaussianNB"]} if kind == "river" else {}
    config = LearnerConfig(kind=kind, **settings)
    good = build(config, numbers, "binary", 0).state()
    for bad in (
        {},
        {"kind": "other"},
        {**good, "kind": "tree"},
        dict.fromkeys(good, 5),
        dict.fromkeys(good),
    ):
        with pytest.raises(CorruptSnapshot):
            build(config, numbers, "binary", 0, bad)


def test_a_linear_state_of_another_schema_or_task_is_refused(numbers: Schema) -> None:
    config = LearnerConfig(kind="linear")
    state = build(config, numbers, "binary", 0).state()
    with pytest.raises(CorruptSnapshot):
        build(config, parse_schema(FLOATS), "binary", 0, state)
    with pytest.raises(CorruptSnapshot):
        build(config, numbers, "regression", 0, state)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_warming_up_leaves_nothing_to_compile(
    task: Task, numbers: Schema, mixed: Schema, make_rows: Any
) -> None:
    from learners import linear_kernels

    warm_up(LearnerConfig(kind="linear"), task)
    compiled = [len(f.signatures) for f in (linear_kernels.predict, linear_kernels.interleave)]
    for schema in (numbers, mixed):
        batch = make_rows(schema, task, 20)
        learner = build(LearnerConfig(kind="linear"), schema, task, 0)
        learner.predict(batch.take(np.arange(1)))
        learner.learn(batch)
        learner.predict(batch)
        learner.interleave(batch, batch, np.tile([False, True], 20))
    assert [len(f.signatures) for f in (linear_kernels.predict, linear_kernels.interleave)] == compiled


def test_a_linear_learner_needs_no_river() -> None:
    import subprocess
    from pathlib import Path

    script = (
        "import sys; from core.config import LearnerConfig; from core.schema import parse_schema\n"
        "from learners.registry import build\n"
        "build(LearnerConfig(kind='linear'), parse_schema({'a': 'float'}), 'binary', 0)\n"
        "sys.exit('river' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", script], cwd=root, check=False).returncode == 0
