"""Learners by kind: what a configuration's `[models.NAME.learner]` becomes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from core.config import LearnerConfig
from core.errors import ConfigError, CorruptSnapshot
from core.plain import State
from core.schema import Schema, Task
from learners import linear_learner
from learners.learner import Learner
from learners.linear_learner import LinearLearner

# Called with (settings, schema, task, seed, state).
Factory = Callable[[dict[str, Any], Schema, Task, int, State | None], Learner]

KINDS = ("linear", "river")


def build(
    config: LearnerConfig, schema: Schema, task: Task, seed: int, state: State | None = None
) -> Learner:
    """The configured learner, fresh or going on from `state`. A kind with a colon names a factory,
    "module:function", called with (settings, schema, task, seed, state).

    Raises ConfigError with every problem found, CorruptSnapshot for a state that is not this learner's.
    """
    settings = config.settings()
    try:
        if config.kind == "linear":
            return LinearLearner(settings, schema, task, state)
        if config.kind == "river":
            made: Learner = _river().RiverLearner(settings, schema, task, seed, state)
            return made
        return _factory(config.kind)(settings, schema, task, seed, state)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        if state is None:
            raise
        raise CorruptSnapshot(f"state of a {config.kind} learner: {type(error).__name__}: {error}") from error


def check(config: LearnerConfig, schema: Schema, task: Task) -> list[str]:
    """What is wrong between a learner's settings, a schema and a task, in words, before anything starts;
    empty where `build` will work."""
    settings = config.settings()
    if config.kind == "linear":
        return linear_learner.check(settings, schema)
    if config.kind == "river":
        found: list[str] = _river().check(settings, schema, task)
        return found
    try:
        _factory(config.kind)
    except ConfigError as error:
        return error.problems
    return []


def warm_up(config: LearnerConfig, task: Task) -> None:
    """Does beforehand what a first call would wait for: compiling, or loading what was compiled."""
    if config.kind == "linear":
        linear_learner.warm_up(task)


def _river() -> Any:
    """River takes most of a second to import, which only its own learners should wait for."""
    from learners import river_learner

    return river_learner


def _factory(kind: str) -> Factory:
    module, colon, name = kind.partition(":")
    if not colon:
        raise ConfigError(
            f'learner.kind: one of {", ".join(KINDS)}, or a factory "module:function", not {kind!r}'
        )
    try:
        factory: Factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"learner.kind: {kind!r} cannot be loaded: {error}") from error
    if not callable(factory):
        raise ConfigError(f"learner.kind: {kind!r} cannot be called")
    return factory
