"""What every detector promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import ConfigError
from drift.registry import NAMES, build, check

SPECS = [
    "adwin",
    {"adwin": {"delta": 0.05, "clock": 1, "max_buckets": 2, "min_window_length": 1, "grace_period": 1}},
    "page_hinkley",
    {"page_hinkley": {"threshold": 25, "min_instances": 10, "alpha": 1}},
]
each = pytest.mark.parametrize("spec", SPECS, ids=str)


def plain(state):
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in state.items()}


def shift(seed=0, low=0.2, high=0.7, n=2_000):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.binomial(1, low, n), rng.binomial(1, high, n)]).astype(float)


@each
def test_a_rise_of_the_loss_is_a_drift_at_its_place(spec):
    verdict = build(spec).update(shift())
    assert 2_000 <= verdict.drift_at < 2_300
    assert verdict.drifts >= 1
    assert not verdict.stable


@each
def test_a_fall_of_the_loss_is_none(spec):
    values = np.concatenate([np.full(1_000, 0.9), np.full(3_000, 0.1)])
    verdict = build(spec).update(values)
    assert verdict.stable
    assert verdict.drifts == 0


@each
def test_values_that_are_not_finite_are_counted_and_never_seen(spec):
    clean = shift()
    rng = np.random.default_rng(1)
    places = np.sort(rng.integers(0, len(clean), 50))
    dirty = np.insert(clean, places, rng.choice([np.nan, np.inf, -np.inf], 50))
    a, b = build(spec), build(spec)
    seen, expected = a.update(dirty), b.update(clean)
    assert a.skipped == 50
    assert b.skipped == 0
    assert plain(a.state()) | {"skipped": 0} == plain(b.state())
    assert seen.drifts == expected.drifts
    finite = np.flatnonzero(np.isfinite(dirty))
    assert seen.drift_at == finite[expected.drift_at]


@each
def test_after_a_drift_it_starts_anew_and_finds_the_next(spec):
    values = np.concatenate([np.full(2_000, 0.1), np.full(2_000, 0.5), np.full(2_000, 0.95)])
    values += np.random.default_rng(2).normal(0, 0.01, len(values))
    detector = build(spec)
    found, start = [], 0
    while start < len(values):
        verdict = build(spec, detector.state()).update(values[start:])
        if verdict.drift_at < 0:
            break
        found.append(start + verdict.drift_at)
        detector.update(values[start : found[-1] + 1])
        start = found[-1] + 1
    assert len(found) == 2
    assert 2_000 <= found[0] < 2_500
    assert 4_000 <= found[1] < 4_500


@each
def test_huge_values_leave_only_finite_numbers(spec):
    detector = build(spec)
    detector.update(np.array([1e30, -1e30, 1e308, -1e308, 1.7e308] * 200))
    for value in detector.state().values():
        assert np.all(np.isfinite(value))


@each
def test_values_of_1e30_do_not_deafen_it(spec):
    detector, values = build(spec), shift() * 1e30
    detector.update(values[:2_000])
    assert 0 <= detector.update(values[2_000:]).drift_at < 300


@each
def test_the_state_is_a_copy_and_the_input_is_left_alone(spec):
    values = shift(3)
    before = values.copy()
    detector = build(spec)
    detector.update(values[:1_000])
    state = detector.state()
    kept = plain(state)
    detector.update(values[1_000:])
    assert plain(state) == kept
    assert np.array_equal(values, before)


@each
def test_no_values_change_nothing(spec):
    detector = build(spec)
    assert detector.update(np.empty(0)).stable
    assert plain(detector.state()) == plain(build(spec).state())


loss = st.one_of(
    st.sampled_from([0.0, 1.0, np.nan, np.inf]),
    st.floats(-1e30, 1e30),
    st.floats(0, 1),
)


@each
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_pieces_equal_the_whole(spec, data):
    low = data.draw(st.lists(loss, max_size=60))
    values = np.array(low + [0.0] * data.draw(st.integers(0, 200)) + [1.0] * data.draw(st.integers(0, 200)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=4)))
    whole, parts = build(spec), build(spec)
    verdict = whole.update(values)
    first, drifts = -1, 0
    for start, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
        parts = build(spec, parts.state())
        piece = parts.update(values[start:end])
        drifts += piece.drifts
        if first < 0 <= piece.drift_at:
            first = start + piece.drift_at
    assert (first, drifts) == (verdict.drift_at, verdict.drifts)
    assert plain(parts.state()) == plain(whole.state())


def test_every_name_builds():
    for name in NAMES:
        assert check(name) == []
        assert build(name).name == name


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("ddm", ["no detector 'ddm'", "adwin"]),
        ({"adwin": {"delta": 2}}, ["adwin.delta", "2"]),
        ({"adwin": {"delta": True}}, ["adwin.delta", "True"]),
        ({"adwin": {"clock": 1.5}}, ["adwin.clock", "1.5"]),
        ({"adwin": {"max_buckets": 1}}, ["adwin.max_buckets", "from 2"]),
        ({"adwin": {"sigma": 1}}, ["adwin.sigma", "delta"]),
        ({"page_hinkley": {"threshold": 0}}, ["page_hinkley.threshold"]),
        ({"page_hinkley": {"threshold": float("nan")}}, ["page_hinkley.threshold"]),
        ({"adwin": {}, "page_hinkley": {}}, ["a name"]),
        ({}, ["a name"]),
        (7, ["a name"]),
        ({"adwin": 0.1}, ["table"]),
    ],
)
def test_a_wrong_specification_is_refused_in_words(spec, words):
    problems = check(spec)
    assert len(problems) == 1
    assert all(word in problems[0] for word in words)
    with pytest.raises(ConfigError):
        build(spec)


def test_all_problems_are_named_together():
    assert len(check({"adwin": {"delta": 0, "clock": 0}})) == 2


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(ConfigError, match="max_buckets is 5"):
        build("adwin", build({"adwin": {"max_buckets": 8}}).state())
