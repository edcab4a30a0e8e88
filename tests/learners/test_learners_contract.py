"""What every learner promises, over every learner."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.batch import Batch
from core.config import LearnerConfig
from core.schema import Schema, Task
from learners.learner import Learner
from learners.registry import build, check
from snapshots import codec

SPLIT = {
    "union": [
        [{"select": "numeric"}, "preprocessing.StandardScaler"],
        [{"select": "category"}, "preprocessing.OneHotEncoder"],
    ]
}
SCALER = "preprocessing.StandardScaler"


@dataclass(frozen=True)
class Case:
    name: str
    task: Task
    settings: dict[str, Any]
    kind: str = "river"
    mixed: bool = False
    rows: int = 150


def river(task: Task, *steps: Any, mixed: bool = False, rows: int = 150, name: str = "") -> Case:
    last = steps[-1] if isinstance(steps[-1], str) else next(iter(steps[-1]))
    return Case(
        f"{name or last.rpartition('.')[2]}-{task}", task, {"steps": list(steps)}, mixed=mixed, rows=rows
    )


TREE = {"tree.HoeffdingTreeClassifier": {"grace_period": 20}}
MEAN = {"leaf_prediction": "mean"}  # a linear leaf takes no strings
ADAPTIVE = {"grace_period": 20, "bootstrap_sampling": True}
CASES = [
    Case("linear-binary", "binary", {}, "linear"),
    Case("linear-binary-mixed", "binary", {}, "linear", mixed=True),
    Case("linear-binary-few-slots", "binary", {"max_categories": 4, "l2": 0.01}, "linear", mixed=True),
    Case("linear-binary-unscaled", "binary", {"scale": False}, "linear", mixed=True),
    Case("linear-multiclass", "multiclass", {}, "linear"),
    Case("linear-multiclass-mixed", "multiclass", {"l2": 0.001}, "linear", mixed=True),
    Case("linear-regression", "regression", {}, "linear"),
    Case("linear-regression-mixed", "regression", {}, "linear", mixed=True),
    river("binary", SCALER, "linear_model.LogisticRegression"),
    river("binary", SPLIT, "linear_model.LogisticRegression", mixed=True, name="Split"),
    river(
        "binary",
        SPLIT,
        {"linear_model.LogisticRegression": {"optimizer": "optim.Adam"}},
        mixed=True,
        name="Adam",
    ),
    river(
        "binary",
        {"preprocessing.FeatureHasher": {"n_features": 16}},
        "linear_model.LogisticRegression",
        mixed=True,
        name="Hasher",
    ),
    river("binary", "preprocessing.MinMaxScaler", "linear_model.LogisticRegression", name="MinMax"),
    river("binary", SCALER, "linear_model.PAClassifier"),
    river("binary", SCALER, "linear_model.ALMAClassifier"),
    river("binary", SCALER, "linear_model.Perceptron"),
    river("binary", "naive_bayes.GaussianNB"),
    river("binary", SCALER, {"facto.FMClassifier": {"n_factors": 2}}),
    river("binary", TREE, mixed=True),
    river("binary", {"tree.HoeffdingAdaptiveTreeClassifier": ADAPTIVE}, mixed=True),
    river("binary", {"tree.ExtremelyFastDecisionTreeClassifier": {"grace_period": 20}}, mixed=True),
    river("binary", {"tree.SGTClassifier": {"grace_period": 20}}),
    river("binary", {"neighbors.KNNClassifier": {"engine": {"neighbors.LazySearch": {"window_size": 50}}}}),
    river("binary", {"forest.ARFClassifier": {"n_models": 3, "grace_period": 20}}, mixed=True),
    river("binary", {"forest.AMFClassifier": {"n_estimators": 3}}, rows=80),
    river("binary", {"ensemble.SRPClassifier": {"n_models": 3, "model": TREE}}, rows=80),
    river("binary", {"ensemble.LeveragingBaggingClassifier": {"n_models": 3, "model": TREE}}),
    river(
        "binary",
        {
            "ensemble.BaggingClassifier": {
                "n_models": 3,
                "model": {"pipeline": [SCALER, "linear_model.LogisticRegression"]},
            }
        },
    ),
    river("binary", {"ensemble.ADWINBaggingClassifier": {"n_models": 3, "model": TREE}}, mixed=True),
    river("binary", {"ensemble.AdaBoostClassifier": {"n_models": 3, "model": TREE}}, mixed=True),
    river("binary", {"ensemble.VotingClassifier": {"models": [TREE, "naive_bayes.GaussianNB"]}}),
    river("multiclass", SCALER, "linear_model.SoftmaxRegression"),
    river(
        "multiclass",
        SCALER,
        {"multiclass.OneVsRestClassifier": {"classifier": "linear_model.LogisticRegression"}},
    ),
    river("multiclass", "naive_bayes.GaussianNB"),
    river("multiclass", TREE, mixed=True),
    river("multiclass", {"forest.ARFClassifier": {"n_models": 3, "grace_period": 20}}, mixed=True),
    river("multiclass", {"forest.AMFClassifier": {"n_estimators": 3}}, rows=80),
    river(
        "multiclass", {"neighbors.KNNClassifier": {"engine": {"neighbors.LazySearch": {"window_size": 50}}}}
    ),
    river("regression", SCALER, "linear_model.LinearRegression"),
    river("regression", SCALER, "linear_model.PARegressor"),
    river("regression", SCALER, {"linear_model.BayesianLinearRegression": {}}),
    river("regression", {"tree.HoeffdingTreeRegressor": {"grace_period": 20, **MEAN}}, mixed=True),
    river("regression", {"tree.HoeffdingAdaptiveTreeRegressor": {**ADAPTIVE, **MEAN}}, mixed=True),
    river("regression", {"forest.ARFRegressor": {"n_models": 3, "grace_period": 20, **MEAN}}, mixed=True),
    river(
        "regression", {"neighbors.KNNRegressor": {"engine": {"neighbors.LazySearch": {"window_size": 50}}}}
    ),
    river("regression", "rules.AMRules"),
    river("regression", {"dummy.StatisticRegressor": {"statistic": "stats.Mean"}}),
]


@pytest.fixture(params=CASES, ids=[c.name for c in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def schema(case: Case, numbers: Schema, mixed: Schema) -> Schema:
    return mixed if case.mixed else numbers


def make(case: Case, schema: Schema, state: Any = None, seed: int = 7) -> Learner:
    return build(LearnerConfig(kind=case.kind, **case.settings), schema, case.task, seed, state)


def stored(learner: Learner) -> bytes:
    return codec.encode(learner.state())


def alternate(n: int) -> np.ndarray:
    return np.tile([False, True], n)


def part(batch: Batch, start: int, stop: int) -> Batch:
    return batch.take(np.arange(start, min(stop, len(batch))))


def one_by_one(learner: Learner, events: Batch, examples: Batch, order: np.ndarray) -> np.ndarray:
    scores, event, example = [], 0, 0
    for learns in order.tolist():
        if learns:
            learner.learn(part(examples, example, example + 1))
            example += 1
        else:
            row = replace(part(events, event, event + 1), y=None, n_classes=examples.n_classes)
            scores.append(learner.predict(row).scores)
            event += 1
    return np.concatenate(scores) if scores else np.empty((0, 0))


def test_nothing_is_wrong_with_the_case(case: Case, schema: Schema) -> None:
    assert check(LearnerConfig(kind=case.kind, **case.settings), schema, case.task) == []


def test_interleaving_equals_one_by_one(case: Case, schema: Schema, make_rows: Any) -> None:
    batch = make_rows(schema, case.task, case.rows)
    at_once, singly = make(case, schema), make(case, schema)
    got = at_once.interleave(batch, batch, alternate(len(batch))).scores
    expected = one_by_one(singly, batch, batch, alternate(len(batch)))
    assert got.shape == (len(batch), {"binary": 2, "multiclass": 3, "regression": 1}[case.task])
    assert np.array_equal(got, expected)
    assert stored(at_once) == stored(singly)
    check_scores(case, got)


def test_predicting_changes_nothing(case: Case, schema: Schema, make_rows: Any) -> None:
    batch = make_rows(schema, case.task, 60)
    learner = make(case, schema)
    for learned in (False, True):
        if learned:
            learner.learn(part(batch, 0, 40))
        before = stored(learner)
        first = learner.predict(odd(batch)).scores
        assert stored(learner) == before
        assert np.array_equal(learner.predict(odd(batch)).scores, first)
        check_scores(case, first)


def odd(batch: Batch) -> Batch:
    """Rows with categories never learned and, now and then, nothing in them at all."""
    X, columns = batch.X.copy(), batch.objects.copy()
    X[::7] = np.nan
    columns[::5] = "never seen"
    columns[::7] = None
    return replace(batch, X=X, objects=columns, y=None)


def test_a_stored_learner_goes_on_identically(case: Case, schema: Schema, make_rows: Any) -> None:
    batch = make_rows(schema, case.task, 120 + 200)
    lived = make(case, schema)
    lived.learn(part(batch, 0, 120))
    data = stored(lived)
    resumed = make(case, schema, codec.decode(data))
    assert stored(resumed) == data
    rest = part(batch, 120, 320) if case.rows > 100 else part(batch, 120, 180)
    expected = lived.interleave(rest, rest, alternate(len(rest))).scores
    assert np.array_equal(resumed.interleave(rest, rest, alternate(len(rest))).scores, expected)
    assert stored(resumed) == stored(lived)


def test_a_state_is_not_shared_with_the_learner(case: Case, schema: Schema, make_rows: Any) -> None:
    batch = make_rows(schema, case.task, 60)
    learner = make(case, schema)
    learner.learn(part(batch, 0, 30))
    state = learner.state()
    before = codec.encode(state)
    other = make(case, schema, state)
    learner.learn(part(batch, 30, 60))
    assert codec.encode(state) == before
    other.learn(part(batch, 30, 60))
    assert codec.encode(state) == before
    assert stored(other) == stored(learner)


def test_equal_seeds_give_equal_bytes(case: Case, schema: Schema, make_rows: Any) -> None:
    batch = make_rows(schema, case.task, 60)
    first, second = make(case, schema), make(case, schema)
    first.learn(batch)
    second.learn(batch)
    assert stored(first) == stored(second)


def test_batches_come_back_unchanged(case: Case, schema: Schema, make_rows: Any) -> None:
    batch = make_rows(schema, case.task, 40)
    before = copy.deepcopy(batch)
    learner = make(case, schema)
    learner.interleave(batch, batch, alternate(40))
    learner.predict(batch)
    learner.learn(batch)
    assert np.array_equal(batch.X, before.X, equal_nan=True)
    assert np.array_equal(batch.objects, before.objects)
    assert batch.y is not None
    assert np.array_equal(batch.y, before.y)  # type: ignore[arg-type]


def test_read_only_and_strided_batches(case: Case, schema: Schema, make_rows: Any) -> None:
    batch = make_rows(schema, case.task, 40)
    strided = replace(batch, X=np.asfortranarray(batch.X), objects=np.asfortranarray(batch.objects))
    for array in (strided.X, strided.objects, strided.y):
        array.flags.writeable = False
    first, second = make(case, schema), make(case, schema)
    expected = first.interleave(batch, batch, alternate(40)).scores
    assert np.array_equal(second.interleave(strided, strided, alternate(40)).scores, expected)


def test_empty_batches(case: Case, schema: Schema, make_rows: Any) -> None:
    batch = make_rows(schema, case.task, 30)
    empty = part(batch, 0, 0)
    learner = make(case, schema)
    learner.learn(batch)
    before = stored(learner)
    learner.learn(empty)
    assert len(learner.predict(empty)) == 0
    assert len(learner.interleave(empty, empty, np.zeros(0, dtype=np.bool_))) == 0
    assert stored(learner) == before


def test_extremes_leave_everything_finite(case: Case, schema: Schema, make_rows: Any) -> None:
    batch = make_rows(schema, case.task, 80)
    X = batch.X.copy()
    extremes = np.array([1e30, -1e30, 1e-300, 5e-324, 0.0, -0.0, 1e15, 1e15 + 1])
    X[10:50, 0] = np.resize(extremes, 40)
    X[20:60, 2] = np.resize(np.array([1e30, -1e30, 2.0**53]), 40)
    wild = replace(batch, X=X)
    learner = make(case, schema)
    check_scores(case, learner.interleave(wild, wild, alternate(80)).scores)
    learner.learn(batch)
    check_scores(case, learner.predict(batch).scores)


def test_constant_features_and_a_single_class(case: Case, schema: Schema, make_rows: Any) -> None:
    batch = make_rows(schema, case.task, 40)
    X = np.ones_like(batch.X) * 3
    assert batch.y is not None
    flat = replace(batch, X=X, y=np.ones_like(batch.y))
    learner = make(case, schema)
    scores = learner.interleave(flat, flat, alternate(40)).scores
    check_scores(case, scores)
    if case.task == "multiclass":
        assert scores[-1].tolist() == [0.0, 1.0, 0.0]


def test_new_classes_in_mid_stream(case: Case, schema: Schema, make_rows: Any) -> None:
    if case.task != "multiclass":
        return
    batch = make_rows(schema, case.task, 90, classes=6)
    assert batch.y is not None
    late = batch.labelled(np.where(np.arange(90) < 45, batch.y % 2, batch.y), 6)
    learner = make(case, schema)
    empty_handed = learner.predict(part(late, 0, 3)).scores
    assert empty_handed.shape == (3, 6)
    assert not empty_handed.any()
    scores = learner.interleave(late, late, alternate(90)).scores
    assert not scores[:45, 2:].any()  # never learned by then
    assert scores[60:, 2:].any()
    check_scores(case, scores)


def check_scores(case: Case, scores: np.ndarray) -> None:
    assert np.isfinite(scores).all()
    if case.task == "binary":
        assert np.allclose(scores.sum(axis=1), 1.0)
    if case.task == "multiclass":
        sums = scores.sum(axis=1)
        assert (np.isclose(sums, 1.0) | (sums == 0.0)).all()
    if case.task != "regression":
        assert (scores >= 0).all()
        assert (scores <= 1 + 1e-9).all()


MASKS = [
    c
    for c in CASES
    if c.name
    in (
        "linear-binary-mixed",
        "linear-binary-few-slots",
        "linear-multiclass-mixed",
        "linear-regression",
        "Split-binary",
        "HoeffdingTreeClassifier-multiclass",
    )
]


@pytest.mark.parametrize("chosen", MASKS, ids=[c.name for c in MASKS])
def test_any_order_equals_one_by_one(chosen: Case, numbers: Schema, mixed: Schema, make_rows: Any) -> None:
    schema = mixed if chosen.mixed else numbers
    pool = make_rows(schema, chosen.task, 60, seed=3)

    @settings(max_examples=25, deadline=None)
    @given(
        order=st.lists(st.booleans(), min_size=1, max_size=40), offset=st.integers(0, 10), same=st.booleans()
    )
    def orders(order: list[bool], offset: int, same: bool) -> None:
        mask = np.array(order)
        events = part(pool, 0, int((~mask).sum()))
        examples = part(pool, offset, offset + int(mask.sum()))
        if same and len(events) == len(examples):
            examples = events.labelled(examples.y, examples.n_classes)  # type: ignore[arg-type]
        at_once, singly = make(chosen, schema), make(chosen, schema)
        got = at_once.interleave(events, examples, mask).scores
        expected = one_by_one(singly, events, examples, mask)
        assert np.array_equal(got, expected) or len(events) == 0
        assert stored(at_once) == stored(singly)

    orders()
