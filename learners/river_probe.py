"""Tries a River model on made-up rows of the schema before it is trusted with real ones."""

from __future__ import annotations

import contextlib
import copy
import enum
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from river import base

from core.errors import ConfigError
from core.schema import Schema, Task
from learners import river_state

# Gives a model's method that answers for one row.
Asker = Callable[[Any], Callable[[dict[str, Any]], Any]]

_ROWS: Final = 12
_MEND: Final = (
    'numbers and categories need steps of their own: { union = [[{ select = "numeric" }, '
    '"preprocessing.StandardScaler"], [{ select = "category" }, "preprocessing.OneHotEncoder"]] }'
)


class Changes(enum.IntEnum):
    """When a River model changes itself while it predicts. Then it predicts on a copy instead."""

    NEVER = 0
    FRESH = 1  # before it has learned anything
    UNSEEN = 2  # and at features or categories that it has not learned
    ALWAYS = 3


def when_it_changes(fresh: Any, schema: Schema, asker: Asker) -> Changes:
    """Watches a fresh model's whole state while it predicts. The model given is left as it was."""
    known, all_features = _row(schema, 1, optional=False), _row(schema, 99, optional=True)
    model = copy.deepcopy(fresh)
    changes = Changes.FRESH if _changed(model, all_features, asker) else Changes.NEVER
    model = copy.deepcopy(fresh)
    for i in range(_ROWS):
        _quietly(model.learn_one, _row(schema, i, optional=False), _label_for(fresh, i))
    if _changed(model, known, asker):
        return Changes.ALWAYS
    return Changes.UNSEEN if _changed(model, all_features, asker) else changes


def problems(fresh: Any, schema: Schema, task: Task, asker: Asker) -> list[str]:
    """What is wrong between a model and a schema: rows that it cannot take, state that cannot be saved."""
    model = copy.deepcopy(fresh)
    if not schema.anys:  # nothing is known about the values of `any` features
        try:
            for i in range(_ROWS):
                row = _row(schema, i, optional=True)
                asker(model)(row)
                model.learn_one(row, label(task, i))
        except Exception as error:
            text = f"{_culprit(error)} cannot take a row of these features: {type(error).__name__}: {error}"
            return [f"learner.steps: {text}" + (f"; {_MEND}" if schema.categories else "")]
    try:
        river_state.decode(river_state.encode(model))
    except ConfigError as error:
        return [f"learner.steps: {problem}" for problem in error.problems]
    return []


def label(task: Task, i: int) -> bool | int | float:
    """A made-up label."""
    if task == "regression":
        return 0.5 * i
    return i % 2 == 0 if task == "binary" else i % 3


def _label_for(model: Any, i: int) -> Any:
    last = model[-1] if hasattr(model, "steps") else model
    return 0.5 * i if isinstance(last, base.Regressor) else i % 2 == 0


def _row(schema: Schema, i: int, *, optional: bool) -> dict[str, Any]:
    """A tame row: small positive numbers, three categories (an unseen one at i = 99)."""
    if schema.open:
        return {"a": 0.5 + i % 4, "b": 1.0} | ({"c": 1.0} if i == 99 else {})
    row: dict[str, Any] = {}
    for j, feature in enumerate(schema.features):
        if feature.optional and not optional:
            continue
        value = (i * (j + 3)) % 5
        row[feature.name] = {
            "float": value + 0.5,
            "int": value,
            "bool": value % 2 == 0,
            "category": "unseen" if i == 99 else "abc"[value % 3],
            "any": value + 0.5,
        }[feature.kind]
    return row


def _changed(model: Any, row: dict[str, Any], asker: Asker) -> bool:
    before = river_state.encode(model)["nodes"]
    _quietly(asker(model), row)
    return not same(before, river_state.encode(model)["nodes"])


def _quietly(call: Callable[..., Any], *args: Any) -> None:
    with contextlib.suppress(Exception):  # `problems` reports it
        call(*args)


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are the same to the last bit and type."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype) and a.shape == b.shape and a.tobytes() == b.tobytes()
    return repr(a) == repr(b)  # NaN equals itself, and 0.0 is not -0.0


def _culprit(error: Exception) -> str:
    """The innermost River estimator that the error came through."""
    name, trace = "River", error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, base.Base):
            name = type(owner).__name__
        trace = trace.tb_next
    return name
