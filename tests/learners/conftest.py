"""Streams of made-up rows with every kind of feature, missing values and a change of concept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from core.batch import Batch
from core.plain import objects
from core.schema import Schema, Task, parse_schema

MakeBatch = Callable[..., Batch]


def numeric_schema() -> Schema:
    return parse_schema({"a": "float", "b": "float?", "c": "int", "d": "bool", "e": "float"})


def mixed_schema() -> Schema:
    return parse_schema(
        {"a": "float", "b": "float?", "c": "int", "d": "bool", "s": "category", "t": "category?"}
    )


def rows(schema: Schema, task: Task, n: int, seed: int = 0, classes: int = 3, missing: float = 0.1) -> Batch:
    """n labelled rows; the label depends on the first two features, turned round after half of them."""
    rng = np.random.default_rng(seed)
    numeric, categories = schema.numeric, schema.categories
    X = rng.normal(size=(n, len(numeric)))
    for j, feature in enumerate(numeric):
        if feature.kind == "int":
            X[:, j] = rng.integers(-5, 6, n)
        elif feature.kind == "bool":
            X[:, j] = rng.integers(0, 2, n)
        if feature.optional:
            X[rng.random(n) < missing, j] = np.nan
    columns = np.empty((n, len(categories)), dtype=object)
    for j, feature in enumerate(categories):
        columns[:, j] = [f"v{v}" for v in rng.integers(0, 6, n)]
        if feature.optional:
            columns[rng.random(n) < missing, j] = None
    signal = X[:, 0] * 2 + X[:, -1] + rng.normal(size=n) * 0.3
    if categories:
        signal += columns[:, 0] == "v1"
    signal[n // 2 :] *= -1
    y = signal
    if task == "binary":
        y = (signal > 0).astype(np.int64)
    elif task == "multiclass":
        y = np.digitize(signal, np.linspace(-1, 1, classes - 1)).astype(np.int64)
    width = {"binary": 2, "multiclass": classes, "regression": 0}[task]
    return Batch(objects([str(i) for i in range(n)]), np.arange(n, dtype=np.int64), X, columns, y, width)


@pytest.fixture
def make_rows() -> MakeBatch:
    return rows


@pytest.fixture
def numbers() -> Schema:
    return numeric_schema()


@pytest.fixture
def mixed() -> Schema:
    return mixed_schema()
