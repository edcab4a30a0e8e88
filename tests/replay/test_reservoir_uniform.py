"""The reservoir's sample is uniform, forgetting included. Fixed seeds; bounds at p = 0.001."""

import numpy as np
import pytest
from scipy.stats import chi2

from core.batch import Batch
from core.plain import objects
from replay.reservoir import Reservoir

N, CAPACITY, RUNS = 60, 12, 1_500
NUMBER = np.arange(N)
ROWS = Batch(
    objects([str(i) for i in NUMBER]), NUMBER, NUMBER.astype(float)[:, None], np.empty((N, 0), object), NUMBER
)


def inclusion(run):
    counts = np.zeros(N)
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        kept = Reservoir(CAPACITY)
        run(kept, rng)
        counts[kept.sample(CAPACITY, rng).y] += 1
    return counts


def uniform(counts, p=0.001):
    """Chi-squared of counts that are drawn without replacement, `share` of the cells a run."""
    share = counts.sum() / (RUNS * len(counts))
    statistic = ((counts - RUNS * share) ** 2).sum() / (RUNS * share * (1 - share)) * (1 - 1 / len(counts))
    return statistic < chi2.ppf(1 - p, len(counts) - 1)


@pytest.mark.parametrize("size", [1, 7, 60])
def test_every_row_has_the_same_chance(size):
    def run(kept, rng):
        for start in range(0, N, size):
            kept.add(ROWS.take(NUMBER[start : start + size]), rng)

    counts = inclusion(run)
    assert counts.sum() == RUNS * CAPACITY
    assert uniform(counts)


def test_the_sample_stays_uniform_over_the_rest_after_forgetting():
    gone = {str(i) for i in range(10, 30)}

    def run(kept, rng):
        kept.add(ROWS.take(NUMBER[:40]), rng)
        kept.forget(gone)
        kept.add(ROWS.take(NUMBER[40:]), rng)

    counts = inclusion(run)
    assert counts[10:30].sum() == 0
    rest = np.delete(counts, np.arange(10, 30))
    assert uniform(rest)


def test_freed_places_fill_again():
    rng = np.random.default_rng(0)
    kept = Reservoir(CAPACITY)
    kept.add(ROWS, rng)
    kept.forget({str(i) for i in range(0, N, 2)})
    assert len(kept) < CAPACITY
    for _ in range(20):
        kept.add(ROWS, rng)
    assert len(kept) == CAPACITY


def test_the_test_itself_sees_a_sample_that_is_not_uniform():
    counts = np.full(N, RUNS * CAPACITY / N)
    counts[:10] *= 1.2
    assert not uniform(counts)
