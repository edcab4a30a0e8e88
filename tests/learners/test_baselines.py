"""The baselines equal a loop over the merged order, whatever the turns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.baselines import Baselines


def naive(task, merged):
    """Answers for each event of a merged sequence of ("event", None) and ("label", y)."""
    labels, answers = [], []
    for what, value in merged:
        if what == "label":
            labels.append(value)
        elif task == "regression":
            answers.append((labels[-1], sum(labels) / len(labels)) if labels else (np.nan, np.nan))
        else:
            best = max(sorted(set(labels)), key=labels.count) if labels else -1
            answers.append((labels[-1] if labels else -1, best))
    return answers


codes = st.integers(0, 4)
step = st.one_of(st.just(("event", None)), st.tuples(st.just("label"), codes))


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_equal_to_one_by_one(task, data):
    merged = data.draw(st.lists(step, max_size=60))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(merged)), max_size=4)))
    baselines, given_answers = Baselines(task), []
    for start, end in zip([0, *cuts], [*cuts, len(merged)], strict=True):
        turn = merged[start:end]
        labels = [(i, y) for i, (what, y) in enumerate(turn) if what == "label"]
        events = [i for i, (what, _) in enumerate(turn) if what == "event"]
        no_change, other = baselines.answers(
            np.array([i for i, _ in labels], np.int64),
            np.array([y for _, y in labels], np.float64 if task == "regression" else np.int64),
            np.array(events, np.int64),
            data.draw(st.sampled_from([0, 5, 9])),
        )
        given_answers += zip(no_change.tolist(), other.tolist(), strict=True)
        baselines = Baselines.from_state(baselines.state())
    expected = naive(task, merged)
    assert len(given_answers) == len(expected)
    for ours, theirs in zip(given_answers, expected, strict=True):
        assert ours == pytest.approx(theirs, nan_ok=True)


def test_a_label_at_the_events_own_position_is_known():
    baselines = Baselines("binary")
    no_change, majority = baselines.answers(np.array([3, 5]), np.array([1, 0]), np.array([2, 3, 4, 5]), 2)
    assert no_change.tolist() == [-1, 1, 1, 0]
    assert majority.tolist() == [-1, 1, 1, 0]


def test_several_labels_at_one_position():
    no_change, majority = Baselines("multiclass").answers(
        np.array([1, 1, 1]), np.array([2, 2, 0]), np.array([0, 1]), 3
    )
    assert no_change.tolist() == [-1, 0]
    assert majority.tolist() == [-1, 2]


def test_scores_of_a_classifier_count_no_answer_as_wrong():
    baselines = Baselines("binary")
    assert baselines.report() == {"no_change": None, "majority": None}
    baselines.score(np.array([-1, 1, 0]), np.array([-1, 0, 0]), np.array([0, 1, 0]))
    assert baselines.report() == {"no_change": 2 / 3, "majority": 1 / 3}
    baselines.score(np.array([1]), np.array([1]), np.array([1]))
    assert Baselines.from_state(baselines.state()).report() == {"no_change": 3 / 4, "majority": 2 / 4}


def test_scores_of_a_regressor_leave_no_answer_out():
    baselines = Baselines("regression")
    assert baselines.report() == {"no_change": None, "mean": None}
    baselines.score(np.array([np.nan, 1.0, 2.0]), np.array([np.nan, np.nan, 3.0]), np.array([5.0, 2.0, 5.0]))
    assert baselines.report() == {"no_change": 2.0, "mean": 2.0}
    assert Baselines.from_state(baselines.state()).report() == baselines.report()


def test_huge_labels_leave_finite_numbers():
    baselines = Baselines("regression")
    big = np.full(5, 1e308)
    no_change, mean = baselines.answers(np.arange(5), big, np.arange(5))
    assert np.isfinite(no_change).all()
    assert np.isfinite(mean).all()
    baselines.score(-no_change, -mean, big)
    assert all(np.isfinite(value) for value in baselines.report().values())


def test_delay_makes_the_baselines_worse():
    y = np.tile([0, 0, 0, 1, 1, 1], 200)
    result = {}
    for delay in (1, 3):
        baselines = Baselines("binary")
        positions = np.arange(len(y))
        no_change, majority = baselines.answers(positions * 2 - 1 + 2 * delay, y, positions * 2, 2)
        baselines.score(no_change, majority, y)
        result[delay] = baselines.report()["no_change"]
    assert result[1] > 0.6
    assert result[3] < 0.01
