"""Scores against River and scikit-learn on the same predictions, and their edge cases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import metrics
from sklearn import metrics as sk

from learners.class_scores import predicted
from learners.ranking import BINS, LIMIT, Ranking
from learners.scores import Scores


def binary(n=6_000, seed=0, sharp=1.5):
    rng = np.random.default_rng(seed)
    y = rng.binomial(1, 0.3, n)
    logit = rng.normal(sharp * (y - 0.5), 1.0, n) * 2
    p = 1 / (1 + np.exp(-logit))
    p[::50] = 0.5
    p[1::50] = 1.0
    p[2::50] = 0.0
    return np.column_stack([1 - p, p]), y


def multiclass(n=4_000, k=5, seed=1):
    rng = np.random.default_rng(seed)
    y = rng.choice(k, n, p=[0.4, 0.3, 0.2, 0.07, 0.03])
    scores = rng.random((n, k)) + 0.7 * np.eye(k)[y]
    scores[::20, :2] = 3.0  # ties
    return scores / scores.sum(axis=1, keepdims=True), y


def fed(task, scores, y, no_change=None, size=257, n_classes=0):
    result = Scores(task, n_classes)
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        result.update(scores[part], y[part], None if no_change is None else no_change[part])
        result = Scores.from_state(result.state())
    return result


def river(metric, truths, answers):
    for truth, answer in zip(truths, answers, strict=True):
        metric.update(truth, answer)
    return metric.get()


@pytest.mark.parametrize(("task", "data"), [("binary", binary), ("multiclass", multiclass)])
def test_classification_equals_river(task, data):
    scores, y = data()
    classes = range(scores.shape[1])
    answers = [max(classes, key=lambda c: row[c]) for row in scores]
    report = fed(task, scores, y).report()
    assert report["accuracy"] == river(metrics.Accuracy(), y.tolist(), answers)
    assert report["balanced_accuracy"] == pytest.approx(
        river(metrics.BalancedAccuracy(), y.tolist(), answers), rel=1e-12
    )
    assert report["kappa"] == pytest.approx(river(metrics.CohenKappa(), y.tolist(), answers), rel=1e-12)
    assert report["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(y, answers), rel=1e-12)
    assert report["kappa"] == pytest.approx(sk.cohen_kappa_score(y, answers), rel=1e-12)
    if task == "binary":
        truths, claims = (y == 1).tolist(), [a == 1 for a in answers]
        assert report["f1"] == pytest.approx(river(metrics.F1(), truths, claims), rel=1e-12)
        assert report["log_loss"] == pytest.approx(
            river(metrics.LogLoss(), truths, scores[:, 1].tolist()), rel=1e-4
        )  # River's 1 - (1 - 1e-15) is 9.99e-16
        inside = (scores[:, 1] > 0) & (scores[:, 1] < 1)
        assert fed(task, scores[inside], y[inside]).report()["log_loss"] == pytest.approx(
            river(metrics.LogLoss(), (y[inside] == 1).tolist(), scores[inside, 1].tolist()), rel=1e-9
        )
    else:
        rows = [dict(enumerate(row)) for row in scores.tolist()]
        assert report["log_loss"] == pytest.approx(river(metrics.CrossEntropy(), y.tolist(), rows), rel=1e-9)
        assert set(report) == {"accuracy", "balanced_accuracy", "kappa", "kappa_temporal", "log_loss"}


@pytest.mark.parametrize("sharp", [0.2, 1.5, 6.0])
def test_areas_equal_those_of_the_exact_scores(sharp):
    scores, y = binary(20_000, 3, sharp)
    result = fed("binary", scores, y, size=4_096)
    report = result.report()
    exact = sk.roc_auc_score(y, scores[:, 1])
    assert report["roc_auc"] == pytest.approx(exact, abs=1e-3)
    bound = Ranking(result.state()["scores"]["ranking"]).roc_auc_error
    assert abs(report["roc_auc"] - exact) <= bound + 1e-12
    assert bound < 2e-3
    assert report["pr_auc"] == pytest.approx(sk.average_precision_score(y, scores[:, 1]), abs=1e-3)


def test_areas_are_exact_where_scores_lie_in_different_bins():
    rng = np.random.default_rng(0)
    p = rng.choice([1e-9, 1e-4, 0.1, 0.45, 0.5, 0.55, 0.9, 1 - 1e-4], 3_000)
    y = rng.binomial(1, 0.2 + 0.6 * p)
    report = fed("binary", np.column_stack([1 - p, p]), y).report()
    assert report["roc_auc"] == pytest.approx(sk.roc_auc_score(y, p), abs=1e-12)
    assert report["pr_auc"] == pytest.approx(sk.average_precision_score(y, p), abs=1e-12)


def test_the_bins_are_as_documented():
    assert 2 * LIMIT / BINS == 1 / 64


def test_kappa_temporal_is_against_the_no_change_answers():
    scores, y = binary()
    no_change = np.concatenate([[-1], y[:-1]])
    report = fed("binary", scores, y, no_change).report()
    persistent = (no_change == y).mean()
    assert report["kappa_temporal"] == pytest.approx((report["accuracy"] - persistent) / (1 - persistent))
    assert fed("binary", scores, y, y).report()["kappa_temporal"] is None


def test_regression_equals_river():
    rng = np.random.default_rng(0)
    y = rng.normal(1e6, 3.0, 3_000)
    prediction = y + rng.normal(0.3, 1.0, len(y))
    report = fed("regression", prediction[:, None], y).report()
    assert report["mae"] == pytest.approx(river(metrics.MAE(), y, prediction), rel=1e-9)
    assert report["rmse"] == pytest.approx(river(metrics.RMSE(), y, prediction), rel=1e-9)
    assert report["r2"] == pytest.approx(sk.r2_score(y, prediction), rel=1e-9)
    assert report["r2"] == pytest.approx(river(metrics.R2(), y, prediction), rel=1e-6)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_nothing_scored_is_none_everywhere(task):
    scores = Scores(task)
    scores.update(np.empty((0, 2)), np.empty(0, np.int64))
    assert scores.n == 0
    assert scores.recent is None
    assert set(scores.report().values()) == {None}


def test_one_class_only_leaves_areas_undefined():
    scores = Scores("binary", 2)
    scores.update(np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([0, 0]), np.array([-1, 0]))
    report = scores.report()
    assert report["roc_auc"] is None
    assert report["pr_auc"] is None
    assert report["accuracy"] == 0.5
    assert report["kappa"] == 0.0
    assert report["f1"] == 0.0
    all_right = Scores("binary", 2)
    all_right.update(np.array([[0.8, 0.2]]), np.array([0]))
    assert all_right.report()["kappa"] is None
    assert all_right.report()["f1"] is None


def test_answers_ties_zeros_and_numbers_that_are_not_finite():
    rows = [[0.5, 0.5], [0, 0], [np.nan, 0.5], [0.5, np.nan], [np.inf, 0], [0.1, 0.9], [np.inf, -np.inf]]
    assert predicted(np.array(rows, float)).tolist() == [0, -1, -1, -1, -1, 1, -1]
    wide = [[0.2, 0.4, 0.4], [0, 0, 0], [np.nan, 0.5, 0.5], [0, 0, 1]]
    assert predicted(np.array(wide, float)).tolist() == [1, -1, -1, 2]
    assert predicted(np.empty((2, 0))).tolist() == [-1, -1]
    assert predicted(np.array([[1.0], [0.0]])).tolist() == [0, -1]


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_no_answer_is_wrong_and_leaves_no_nan(task):
    scores = Scores(task)
    rows = np.array([[0.0, 0.0], [np.nan, 0.5], [np.inf, 0.0], [0.9, 0.1]])
    y = np.array([0, 1, 0, 0])
    assert scores.losses(rows, y).tolist() == [1, 1, 1, 0]
    assert scores.bounded_loss(rows, y) == pytest.approx([1, 1, 1, 0.01])
    scores.update(rows, y, np.array([-1, 0, 1, 0]))
    report = scores.report()
    assert report["accuracy"] == 0.25
    assert all(value is None or math.isfinite(value) for value in report.values())
    assert report["log_loss"] > 10


def test_classes_appear_on_the_way():
    scores = Scores("multiclass")
    scores.update(np.empty((2, 0)), np.array([0, 1]), None, 2)
    scores.update(np.array([[0.6, 0.4], [0.4, 0.6]]), np.array([0, 2]), None, 3)
    scores.update(np.array([[0.1, 0.2, 0.7]]), np.array([2]), None, 3)
    report = scores.report()
    assert report["accuracy"] == 2 / 5
    assert report["balanced_accuracy"] == pytest.approx((1 / 2 + 0 + 1 / 2) / 3)
    assert scores.bounded_loss(np.array([[0.6, 0.4]]), np.array([4]))[0] == pytest.approx(
        0.5 * (0.36 + 0.16 + 1)
    )


@given(
    k=st.integers(2, 6),
    n=st.integers(1, 30),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=50, deadline=None)
def test_bounded_loss_is_half_the_brier_score(k, n, seed):
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.ones(k), n)
    y = rng.integers(0, k, n)
    loss = Scores("multiclass").bounded_loss(scores, y)
    assert loss == pytest.approx(0.5 * ((scores - np.eye(k)[y]) ** 2).sum(axis=1))
    assert np.all((loss >= 0) & (loss <= 1))


def test_regression_without_a_finite_prediction_is_left_out_and_counted():
    scores = Scores("regression")
    rows = np.array([[1.0], [np.nan], [np.inf], [4.0]])
    y = np.array([2.0, 2.0, 2.0, 4.0])
    assert scores.losses(rows, y) == pytest.approx([1, np.nan, np.nan, 0], nan_ok=True)
    assert np.isnan(scores.bounded_loss(rows, y)).all()
    scores.update(rows, y)
    assert (scores.n, scores.unanswered) == (2, 2)
    assert scores.report()["mae"] == 0.5
    assert scores.bounded_loss(rows, y, 4.0) == pytest.approx([0.25, 1, 1, 0])
    scores.update(np.empty((3, 0)), np.ones(3))
    assert scores.unanswered == 5


def test_regression_survives_huge_numbers():
    scores = Scores("regression")
    scores.update(np.array([[1e308], [-1e308], [0.0]]), np.array([-1e308, 1e308, 1e30]))
    assert all(math.isfinite(value) for value in scores.report().values())


def test_the_scale_is_the_middle_range_of_the_labels_whatever_the_outliers():
    rng = np.random.default_rng(0)
    scores = Scores("regression")
    assert scores.scale is None
    y = rng.normal(50, 10, 5_000)
    y[::40] = 1e30
    scores.update(np.zeros((len(y), 1)), y)
    assert 30 < scores.scale < 50
    assert Scores.from_state(scores.state()).scale == scores.scale
    constant = Scores("regression")
    constant.update(np.zeros((5, 1)), np.zeros(5))
    assert constant.scale == 1.0
    assert constant.bounded_loss(np.array([[0.25]]), np.array([0.0])).tolist() == [0.25]


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_recent_is_over_the_last_thousand(task):
    scores = Scores(task, 2)
    for right, n in ((True, 1_700), (False, 300), (True, 200)):
        if task == "binary":
            scores.update(np.tile([0.9, 0.1] if right else [0.1, 0.9], (n, 1)), np.zeros(n, np.int64))
        else:
            scores.update(np.zeros((n, 1)), np.full(n, 1.0 if right else 0.0))
    assert scores.recent == pytest.approx(0.7)
    assert Scores.from_state(scores.state()).recent == scores.recent


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_batches_of_any_size_give_the_same(task):
    scores, y = binary(1_000)
    if task == "regression":
        scores, y = scores[:, :1], y.astype(float)
    whole, parts = fed(task, scores, y, y, 10_000), fed(task, scores, y, y, 1)
    assert whole.n == parts.n
    for name, value in whole.report().items():
        assert parts.report()[name] == (None if value is None else pytest.approx(value, rel=1e-9)), name
    assert whole.recent == pytest.approx(parts.recent)


def test_the_state_is_a_copy():
    scores, y = binary(100)
    result = Scores("binary", 2)
    result.update(scores, y)
    state = result.state()
    before = Scores.from_state(state).report()
    result.update(scores, 1 - y)
    assert Scores.from_state(state).report() == before
    with pytest.raises(ValueError, match="binary"):
        Scores("regression", state=state)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="3 predictions for 2 labels"):
        Scores("binary").update(np.zeros((3, 2)), np.zeros(2, np.int64))
