"""Results equal River's detectors at every value of long streams."""

import numpy as np
import pytest
from river import drift as river_drift

from drift.adwin import Adwin
from drift.page_hinkley import PageHinkley


def stream(seed, kind):
    rng = np.random.default_rng(seed)
    parts = []
    for mean in rng.permutation([0.1, 0.3, 0.45, 0.6, 0.8, 0.9, 0.25]):
        n = int(rng.integers(200, 2_500))
        if kind == "binary":
            parts.append(rng.binomial(1, mean, n).astype(float))
        elif kind == "float":
            parts.append(rng.normal(mean, 0.2, n))
        else:
            parts.append(np.abs(rng.normal(1e6 * mean, 3e5, n)))
    return np.concatenate(parts)


ADWINS = [
    {},
    {"delta": 0.2, "clock": 1, "max_buckets": 2, "min_window_length": 1, "grace_period": 1},
    {"delta": 0.01, "clock": 7, "max_buckets": 9, "min_window_length": 30, "grace_period": 100},
]


@pytest.mark.parametrize("settings", ADWINS, ids=str)
@pytest.mark.parametrize("kind", ["binary", "float", "large"])
def test_adwin(kind, settings):
    ours, theirs = Adwin(**settings), river_drift.ADWIN(**settings)
    changes = drifts = 0
    for value in stream(len(kind) + len(settings), kind):
        mean_before = ours.estimation
        improvements = ours.improvements
        drift = ours.update(np.array([value])).drifts
        theirs.update(float(value))
        changed = drift + ours.improvements - improvements
        assert changed == theirs.drift_detected
        assert ours.width == theirs.width
        assert ours.estimation == theirs.estimation
        assert ours.variance == theirs.variance
        if changed and not settings:  # what is left of the window is the newer part
            assert (ours.estimation > mean_before) == bool(drift)
        changes += changed
        drifts += drift
    assert changes >= 3
    assert 0 < drifts < changes


@pytest.mark.parametrize(
    "settings", [{}, {"min_instances": 5, "delta": 0.05, "threshold": 3.0, "alpha": 0.99}]
)
@pytest.mark.parametrize("kind", ["binary", "float", "large"])
def test_page_hinkley(kind, settings):
    values = stream(11, kind)
    ours, theirs = PageHinkley(**settings), river_drift.PageHinkley(**settings, mode="up")
    drifts = 0
    for value in values:
        drift = ours.update(np.array([value])).drifts
        theirs.update(float(value))
        assert drift == theirs.drift_detected
        assert ours.estimation == theirs._x_mean.get()
        drifts += drift
    assert drifts > 0


def test_one_call_gives_the_same_drifts_as_one_at_a_time():
    values = stream(5, "binary")
    one, many = Adwin(), Adwin()
    indices = [i for i, value in enumerate(values) if one.update(np.array([value])).drifts]
    verdict = many.update(values)
    assert verdict.drift_at == indices[0]
    assert verdict.drifts == len(indices) == many.drifts
