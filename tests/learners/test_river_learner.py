"""The River adapter against a bare River loop, and what it does where River breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from river import forest, linear_model, naive_bayes, preprocessing, tree

from core.batch import Batch
from core.config import LearnerConfig
from core.plain import objects
from core.schema import Schema, parse_schema
from learners.registry import build
from learners.river_rows import Rows


def learner(schema: Schema, task: Any, *steps: Any) -> Any:
    return build(LearnerConfig(kind="river", steps=list(steps)), schema, task, 3)


def dicts(schema: Schema, batch: Batch) -> list[dict[str, Any]]:
    """Rows the slow and plain way."""
    kinds = {"float": float, "int": int, "bool": bool}
    rows = []
    for i in range(len(batch)):
        x = {
            f.name: kinds[f.kind](v)
            for f, v in zip(schema.numeric, batch.X[i], strict=True)
            if not np.isnan(v)
        }
        x |= {f.name: v for f, v in zip(schema.categories, batch.objects[i], strict=True) if v is not None}
        rows.append(x)
    return rows


def test_rows_hold_present_features_in_their_own_type(mixed: Schema, make_rows: Any) -> None:
    batch = make_rows(mixed, "binary", 50, missing=0.4)
    got = Rows(mixed)(batch)
    expected = dicts(mixed, batch)
    assert got == expected
    assert [[type(v) for v in row.values()] for row in got] == [
        [type(v) for v in r.values()] for r in expected
    ]
    assert any("b" not in row for row in got)


def test_any_features_come_as_they_are() -> None:
    schema = parse_schema({"a": "float", "x": "any"})
    thing = {"deep": [1, 2]}
    batch = Batch(objects(["1", "2"]), np.arange(2), np.ones((2, 1)), objects([thing, None]).reshape(2, 1))
    rows = Rows(schema)(batch)
    assert rows == [{"a": 1.0, "x": {"deep": [1, 2]}}, {"a": 1.0}]
    assert rows[0]["x"] is thing


def test_open_maps_are_copied() -> None:
    schema = parse_schema("any")
    thing = {"a": 1.0, "b": "x"}
    batch = Batch(objects(["1", "2"]), np.arange(2), np.empty((2, 0)), objects([thing, None]).reshape(2, 1))
    rows = Rows(schema)(batch)
    assert rows == [thing, {}]
    assert rows[0] is not thing


def test_an_open_schema_learns(make_rows: Any) -> None:
    schema = parse_schema("any")
    rng = np.random.default_rng(0)
    maps = [
        {"a": float(v), "b": float(-v), **({"c": 1.0} if i > 50 else {})}
        for i, v in enumerate(rng.normal(size=200))
    ]
    y = np.array([int(m["a"] > 0) for m in maps])
    batch = Batch(
        objects([""] * 200), np.arange(200), np.empty((200, 0)), objects(maps).reshape(200, 1), y, 2
    )
    model = learner(schema, "binary", "preprocessing.StandardScaler", "linear_model.LogisticRegression")
    scores = model.interleave(batch, batch, np.tile([False, True], 200)).scores
    assert ((scores[100:, 1] > 0.5) == y[100:]).mean() > 0.95


@pytest.mark.parametrize(
    ("steps", "bare"),
    [
        (
            ["preprocessing.StandardScaler", "linear_model.LogisticRegression"],
            lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(),
        ),
        (["naive_bayes.GaussianNB"], naive_bayes.GaussianNB),
        ([{"forest.ARFClassifier": {"n_models": 3}}], lambda: forest.ARFClassifier(n_models=3, seed=3)),
        (["tree.HoeffdingTreeClassifier"], tree.HoeffdingTreeClassifier),
    ],
    ids=["logistic", "bayes", "forest", "tree"],
)
def test_scores_are_river_s_own(steps: Any, bare: Any, numbers: Schema, make_rows: Any) -> None:
    batch = make_rows(numbers, "binary", 400)
    model, expected = bare(), []
    for x, y in zip(dicts(numbers, batch), batch.y.tolist(), strict=True):
        p = model.predict_proba_one(x)
        total = sum(p.values())
        expected.append(p.get(True, 0.0) / total if total else 0.5)
        model.learn_one(x, bool(y))
    got = learner(numbers, "binary", *steps).interleave(batch, batch, np.tile([False, True], 400)).scores
    assert np.allclose(got[:, 1], expected, rtol=0, atol=1e-12)


def test_nothing_learned_is_nothing_known(numbers: Schema, make_rows: Any) -> None:
    batch = make_rows(numbers, "multiclass", 3)
    tree_scores = learner(numbers, "multiclass", "tree.HoeffdingTreeClassifier").predict(batch).scores
    assert tree_scores.tolist() == [[0.0] * 3] * 3
    binary = (
        learner(numbers, "binary", "tree.HoeffdingTreeClassifier").predict(replace(batch, n_classes=2)).scores
    )
    assert binary.tolist() == [[0.5, 0.5]] * 3


def test_a_model_of_labels_only_gives_all_or_nothing(numbers: Schema, make_rows: Any) -> None:
    batch = make_rows(numbers, "multiclass", 60)
    steps = {"multiclass.OneVsOneClassifier": {"classifier": "linear_model.LogisticRegression"}}
    model = learner(numbers, "multiclass", "preprocessing.StandardScaler", steps)
    scores = model.interleave(batch, batch, np.tile([False, True], 60)).scores
    assert set(scores.ravel().tolist()) == {0.0, 1.0}
    assert (scores[10:].sum(axis=1) == 1.0).all()


def test_a_row_that_river_cannot_take_is_counted_and_harms_nobody() -> None:
    schema = parse_schema({"a": "float", "x": "any"})
    model = learner(schema, "binary", "preprocessing.StandardScaler", "linear_model.LogisticRegression")
    values = objects([1.0, "text", 2.0, {"a": 1}, 3.0])
    batch = Batch(
        objects([""] * 5),
        np.arange(5),
        np.arange(5.0).reshape(5, 1),
        values.reshape(5, 1),
        np.array([0, 1, 1, 0, 1]),
        2,
    )
    scores = model.interleave(batch, batch, np.tile([False, True], 5)).scores
    assert scores[3].tolist() == [0.5, 0.5]
    assert model.refused == 2
    assert model.non_finite >= 1
    assert model.state()["refused"] == 2
    assert np.isfinite(scores).all()
    restored = build(
        LearnerConfig(
            kind="river", steps=["preprocessing.StandardScaler", "linear_model.LogisticRegression"]
        ),
        schema,
        "binary",
        3,
        model.state(),
    )
    assert restored.refused == 2  # type: ignore[attr-defined]


def test_answers_that_are_not_finite_become_no_information(numbers: Schema, make_rows: Any) -> None:
    batch = make_rows(numbers, "regression", 5)
    model = learner(numbers, "regression", "linear_model.LinearRegression")
    model.model.intercept = float("nan")
    assert model.predict(batch).scores.tolist() == [[0.0]] * 5
    assert model.non_finite == 5
    binary = learner(numbers, "binary", "linear_model.LogisticRegression")
    binary.model.intercept = float("nan")
    assert binary.predict(batch).scores.tolist() == [[0.5, 0.5]] * 5
