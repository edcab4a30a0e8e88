"""The compiled learner against River's own pipeline, to 1e-9, on made-up and on River's bundled streams."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import compose, datasets, linear_model, optim, preprocessing

from core.batch import Batch
from core.config import LearnerConfig
from core.plain import objects
from core.schema import Schema, Task, parse_schema
from learners.registry import build

TOLERANCE = 1e-9


def river_model(task: Task, **options: Any) -> Any:
    last = {
        "binary": linear_model.LogisticRegression,
        "multiclass": linear_model.SoftmaxRegression,
        "regression": linear_model.LinearRegression,
    }[task](**options)
    number = compose.SelectType(numbers.Number) | preprocessing.StandardScaler()
    text = compose.SelectType(str) | preprocessing.OneHotEncoder()
    return (number + text) | last


def prequential(model: Any, schema: Schema, task: Task, batch: Batch) -> np.ndarray:
    """River's predictions, each before its row is learned, as the Learner port gives scores."""
    kinds = {"float": float, "int": int, "bool": bool}
    scores = []
    for i in range(len(batch)):
        x: dict[str, Any] = {}
        for j, feature in enumerate(schema.numeric):
            if not np.isnan(batch.X[i, j]):
                x[feature.name] = kinds[feature.kind](batch.X[i, j])
        for j, feature in enumerate(schema.categories):
            if batch.objects[i, j] is not None:
                x[feature.name] = batch.objects[i, j]
        assert batch.y is not None
        y = batch.y[i].item()
        if task == "regression":
            scores.append([model.predict_one(x)])
            model.learn_one(x, y)
        elif task == "binary":
            p = model.predict_proba_one(x)
            scores.append([p[False], p[True]])
            model.learn_one(x, bool(y))
        else:
            p = model.predict_proba_one(x)
            scores.append([p.get(k, 0.0) for k in range(batch.n_classes)])
            model.learn_one(x, y)
    return np.array(scores)


def ours(schema: Schema, task: Task, batch: Batch, **options: Any) -> np.ndarray:
    learner = build(LearnerConfig(kind="linear", **options), schema, task, 0)
    return learner.interleave(batch, batch, np.tile([False, True], len(batch))).scores


@pytest.mark.parametrize("l2", [0.0, 0.01])
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_mixed_features_with_holes(task: Task, l2: float, mixed: Schema, make_rows: Any) -> None:
    batch = make_rows(mixed, task, 600)
    expected = prequential(river_model(task, l2=l2), mixed, task, batch)
    assert np.allclose(ours(mixed, task, batch, l2=l2), expected, rtol=0, atol=TOLERANCE)


def test_other_rates(mixed: Schema, make_rows: Any) -> None:
    batch = make_rows(mixed, "binary", 400)
    model = river_model("binary", optimizer=optim.SGD(0.1), intercept_lr=0.05)
    expected = prequential(model, mixed, "binary", batch)
    assert np.allclose(
        ours(mixed, "binary", batch, lr=0.1, intercept_lr=0.05), expected, rtol=0, atol=TOLERANCE
    )


def test_l2_over_so_many_steps_that_the_common_factor_is_multiplied_out(make_rows: Any) -> None:
    schema = parse_schema({"a": "float", "s": "category"})
    batch = make_rows(schema, "binary", 1_500)
    model = river_model("binary", optimizer=optim.SGD(0.5), l2=0.4)
    expected = prequential(model, schema, "binary", batch)
    assert np.allclose(ours(schema, "binary", batch, lr=0.5, l2=0.4), expected, rtol=0, atol=TOLERANCE)


def test_classes_that_turn_up_late(mixed: Schema, make_rows: Any) -> None:
    batch = make_rows(mixed, "multiclass", 300, classes=6)
    assert batch.y is not None
    late = batch.labelled(np.where(np.arange(300) < 150, batch.y % 2, batch.y), 6)
    expected = prequential(river_model("multiclass"), mixed, "multiclass", late)
    assert np.allclose(ours(mixed, "multiclass", late), expected, rtol=0, atol=TOLERANCE)


@settings(max_examples=30, deadline=None)
@given(
    values=st.lists(
        st.tuples(
            st.floats(-1e6, 1e6) | st.just(float("nan")) | st.just(3.0),
            st.sampled_from(["x", "y", "z", None]),
            st.booleans(),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_any_stream(values: list[tuple[float, str | None, bool]]) -> None:
    schema = parse_schema({"a": "float?", "s": "category?"})
    n = len(values)
    columns = np.empty((n, 1), dtype=object)
    columns[:, 0] = [v[1] for v in values]
    batch = Batch(
        objects([str(i) for i in range(n)]),
        np.arange(n),
        np.array([[v[0]] for v in values]),
        columns,
        np.array([int(v[2]) for v in values]),
        2,
    )
    expected = prequential(river_model("binary"), schema, "binary", batch)
    assert np.allclose(ours(schema, "binary", batch), expected, rtol=0, atol=TOLERANCE)


def elec2_like(n: int) -> tuple[Schema, Batch]:
    """Prices and demand over days of 48 half hours, up or down against the last day, with drifts."""
    rng = np.random.default_rng(5)
    t = np.arange(n)
    demand = 0.5 + 0.3 * np.sin(2 * np.pi * t / 48) + rng.normal(0, 0.05, n)
    price = 0.06 + 0.02 * demand * (1 + (t > n // 2)) + np.abs(rng.standard_t(2, n)) * 0.01
    transfer = np.where(t > n // 3, 0.4 + 0.1 * rng.normal(size=n), 0.4149)  # constant at first
    X = np.column_stack([t % 7 + 1.0, (t % 48) / 47, price, demand, transfer])
    y = (price > np.roll(price, 48)).astype(np.int64)
    schema = parse_schema(
        {"day": "int", "period": "float", "price": "float", "demand": "float", "transfer": "float"}
    )
    return schema, Batch(objects([str(i) for i in t]), t, X, np.empty((n, 0), dtype=object), y, 2)


def test_a_stream_like_elec2() -> None:
    schema, batch = elec2_like(3_000)
    expected = prequential(river_model("binary"), schema, "binary", batch)
    assert np.allclose(ours(schema, "binary", batch), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("dataset", "task"),
    [
        (datasets.Phishing, "binary"),
        (datasets.TrumpApproval, "regression"),
        (datasets.ImageSegments, "multiclass"),
    ],
)
def test_streams_that_river_ships(dataset: Any, task: Task) -> None:
    stream = list(dataset().take(1_200))
    names = list(stream[0][0])
    kinds = {n: "int" if isinstance(stream[0][0][n], int) else "float" for n in names}
    kinds = {n: k if all(isinstance(x[n], int) for x, _ in stream) else "float" for n, k in kinds.items()}
    schema = parse_schema(kinds)
    X = np.array([[float(x[f.name]) for f in schema.numeric] for x, _ in stream])
    labels = [y for _, y in stream]
    codes = list(dict.fromkeys(labels))
    y = (
        np.array(labels, dtype=float)
        if task == "regression"
        else np.array([int(v) if task == "binary" else codes.index(v) for v in labels])
    )
    n = len(stream)
    width = {"binary": 2, "multiclass": len(codes), "regression": 0}[task]
    batch = Batch(objects([""] * n), np.arange(n), X, np.empty((n, 0), dtype=object), y, width)
    expected = prequential(river_model(task), schema, task, batch)
    got = ours(schema, task, batch)
    assert np.allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE)
    assert got.std() > 0.01


def test_many_categories_stay_bounded() -> None:
    schema = parse_schema({"s": "category"})
    learner = build(LearnerConfig(kind="linear", max_categories=50), schema, "binary", 0)
    n = 5_000
    columns = np.empty((n, 1), dtype=object)
    columns[:, 0] = [f"id{i}" for i in range(n)]
    batch = Batch(objects([""] * n), np.arange(n), np.empty((n, 0)), columns, np.arange(n) % 2, 2)
    learner.learn(batch)
    state = learner.state()
    assert len(state["vocabulary"]["values"]) == 50
    assert state["category_weights"].shape == (50, 1)
    assert state["shared_weights"].shape == (1024, 1)
    assert state["vocabulary"]["overflowed"] == n - 50
    assert state["shared_weights"].any()


@pytest.mark.parametrize("scale", [True, False])
def test_a_poisonous_row_is_refused_and_changes_nothing(scale: bool, make_rows: Any) -> None:
    schema = parse_schema({"a": "float", "b": "float"})
    batch = make_rows(schema, "regression", 50)
    learner: Any = build(LearnerConfig(kind="linear", scale=scale), schema, "regression", 0)
    learner.learn(batch)
    before = learner.state()
    for value in (1.7e308, float("inf")):
        X = batch.X[:2].copy()
        X[:, 1] = [value, -value]
        learner.learn(Batch(batch.ids[:2], batch.ts_ms[:2], X, batch.objects[:2], batch.y[:2], 0))
    bad_label = Batch(batch.ids[:1], batch.ts_ms[:1], batch.X[:1], batch.objects[:1], np.array([np.nan]), 0)
    learner.learn(bad_label)
    after = learner.state()
    assert learner.refused == after["refused"] == 5
    assert np.isfinite(learner.predict(batch).scores).all()
    for part in ("counts", "means", "variances", "weights", "bias"):
        assert np.array_equal(after[part], before[part])
