"""Rows that the compiled learner refuses leave it as if they had never come, at every width: LLVM runs the
same loop in wide and in narrow pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core.batch import Batch
from core.config import LearnerConfig
from core.plain import objects
from core.schema import Task, parse_schema
from learners.registry import build

POISON = (np.inf, -np.inf, 1.7e308, -1.5e308, 1e200)


def rows(task: Task, width: int, categories: int, n: int, rng: np.random.Generator) -> Batch:
    X = rng.normal(5.0, 3.0, (n, width))
    X[rng.random(X.shape) < 0.1] = np.nan
    cells = np.empty((n, categories), dtype=object)
    for j in range(categories):
        cells[:, j] = [f"v{v}" if v else None for v in rng.integers(0, 9, n)]
    y = rng.normal(size=n) if task == "regression" else rng.integers(0, 2 if task == "binary" else 4, n)
    classes = {"binary": 2, "multiclass": 4, "regression": 0}[task]
    return Batch(objects([str(i) for i in range(n)]), np.arange(n), X, cells, y, classes)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(a == b)


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("l2", [0.0, 0.01])
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_refused_rows_never_came(task: Task, l2: float, scale: bool) -> None:
    for width in (1, 3, 8, 16, 19):
        rng = np.random.default_rng(width)
        categories = width % 3
        schema = parse_schema(
            {f"n{j}": "float?" for j in range(width)} | {f"c{j}": "category?" for j in range(categories)}
        )
        config = LearnerConfig(kind="linear", l2=l2, scale=scale)
        whole = rows(task, width, categories, 60, rng)
        bad = np.sort(rng.choice(np.arange(10, 60), 12, replace=False))
        whole.X[bad, rng.integers(0, width, len(bad))] = rng.choice(POISON, len(bad))
        if task == "regression":
            assert whole.y is not None
            whole.y[bad[:2]] = (np.nan, np.inf)
        one_by_one: Any = build(config, schema, task, 0)
        taken = []
        for i in range(len(whole)):
            before = one_by_one.state()
            row = whole.take(np.array([i]))
            one_by_one.learn(row)
            after = one_by_one.state()
            if after["refused"] == before["refused"]:
                taken.append(i)
                continue
            numbers = before.keys() - {"refused", "vocabulary", "category_weights"}
            assert all(same(before[key], after[key]) for key in numbers)
        assert len(taken) < len(whole)
        refused = len(whole) - len(taken)

        at_once: Any = build(config, schema, task, 0)
        at_once.interleave(whole, whole, np.tile([False, True], len(whole)))
        assert at_once.refused == refused
        assert same(at_once.state(), one_by_one.state())
        arrays = [v for v in at_once.state().values() if isinstance(v, np.ndarray)]
        assert all(np.isfinite(v).all() for v in arrays)

        kept: Any = build(config, schema, task, 0)
        kept.learn(whole.take(np.array(taken)))
        got, expected = at_once.predict(whole).scores, kept.predict(whole).scores
        assert got.tobytes() == expected.tobytes()
        assert np.isfinite(got).all()
