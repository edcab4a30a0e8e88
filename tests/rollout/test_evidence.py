"""The evidence is sound however often it is looked at, and finds real gains."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.evidence import PairedEvidence
from rollout.evidence_kernels import BETS, FOURTHS, log_capital


def peeked(champion, challenger, alpha=0.05, every=100, evidence=None):
    """Whether a win, and whether a loss, was ever seen at a look."""
    evidence = evidence or PairedEvidence(alpha)
    won = lost = False
    for start in range(0, len(champion), every):
        evidence.update(champion[start : start + every], challenger[start : start + every])
        won |= evidence.wins()
        lost |= evidence.loses()
    return won, lost


def bernoulli(rng, p, n):
    return rng.binomial(1, p, n).astype(float)


# Pairs of equally good lineages: losses that are independent, that nearly always agree, that are
# fractions, and gains that are rarely but strongly positive and often slightly negative.
def independent(rng, n):
    return bernoulli(rng, 0.3, n), bernoulli(rng, 0.3, n)


def agreeing(rng, n):
    a = bernoulli(rng, 0.2, n)
    flipped = rng.random(n) < 0.02
    b = np.where(flipped, rng.permutation(a), a)
    return a, b


def brier(rng, n):
    truth = bernoulli(rng, 0.5, n)
    return (truth - rng.beta(2, 2, n)) ** 2, (truth - rng.beta(2, 2, n)) ** 2


def skewed(rng, n):
    rare = rng.random(n) < 0.02
    return np.where(rare, 0.98, 0.0), np.where(rare, 0.0, 0.02)


@pytest.mark.parametrize("pairs", [independent, agreeing, brier, skewed])
def test_equals_are_promoted_or_dropped_at_most_at_the_rate_alpha(pairs):
    runs, n, alpha = 200, 5_000, 0.05
    won = lost = 0
    for seed in range(runs):
        win, loss = peeked(*pairs(np.random.default_rng(seed), n), alpha)
        won += win
        lost += loss
    slack = 2.6 * math.sqrt(alpha * (1 - alpha) / runs)  # binomial, p = 0.005
    assert won / runs <= alpha + slack
    assert lost / runs <= alpha + slack


@pytest.mark.parametrize("alpha", [0.5, 0.2])
def test_the_rate_is_of_the_order_of_alpha_so_the_test_above_can_fail(alpha):
    """Soundness bought by never deciding would pass too: at a large alpha wins must happen."""
    won = sum(peeked(*independent(np.random.default_rng(seed), 5_000), alpha)[0] for seed in range(200))
    assert 0.05 * alpha < won / 200 <= alpha


def test_a_gain_of_three_points_is_found_within_a_few_thousand_examples():
    needed = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        evidence = PairedEvidence(0.05)
        for _ in range(120):
            evidence.update(bernoulli(rng, 0.30, 100), bernoulli(rng, 0.27, 100))
            if evidence.wins():
                break
        assert evidence.wins()
        needed.append(evidence.n)
    assert np.median(needed) < 5_000


def test_a_win_is_declared_at_the_first_look_at_which_the_capital_proves_it():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        evidence, sums, n = PairedEvidence(0.05), np.zeros(4), 0
        proven = False
        for _ in range(150):
            champion, challenger = bernoulli(rng, 0.30, 64), bernoulli(rng, 0.26, 64)
            evidence.update(champion, challenger)
            n += 64
            sums += [((champion - challenger) ** k).sum() for k in range(1, 5)]
            proven |= log_capital(sums, float(n), 0.0, BETS, FOURTHS) >= -math.log(0.05)
            assert evidence.wins() == proven
        assert proven


def test_the_same_gain_is_found_sooner_where_the_lineages_mostly_agree():
    rng = np.random.default_rng(0)
    gains = rng.choice([1.0, 0.0, -1.0], 3_000, p=[0.065, 0.9, 0.035])
    won, lost = peeked(np.maximum(gains, 0), np.maximum(-gains, 0))
    assert won
    assert not lost


def test_a_worse_challenger_is_proven_worse():
    rng = np.random.default_rng(0)
    won, lost = peeked(bernoulli(rng, 0.27, 10_000), bernoulli(rng, 0.30, 10_000))
    assert lost
    assert not won


def test_bounds_hold_the_true_gain_and_only_tighten():
    missed = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        evidence = PairedEvidence(0.05)
        before = (-1.0, 1.0)
        for _ in range(30):
            evidence.update(bernoulli(rng, 0.5, 100), bernoulli(rng, 0.4, 100))
            assert before[0] <= evidence.lower
            assert evidence.upper <= before[1]
            before = (evidence.lower, evidence.upper)
        missed += not evidence.lower < 0.1 < evidence.upper
        assert evidence.upper - evidence.lower < 0.15
    assert missed <= 16  # two bounds at 0.05 each, and slack


def test_a_minimal_gain_must_be_exceeded_by_proof():
    rng = np.random.default_rng(0)
    evidence = PairedEvidence(0.05)
    evidence.update(bernoulli(rng, 0.5, 20_000), bernoulli(rng, 0.4, 20_000))
    assert evidence.wins(0.05)
    assert not evidence.wins(0.1)
    assert evidence.mean_gain == pytest.approx(0.1, abs=0.02)


def test_the_bound_scales_the_losses():
    rng = np.random.default_rng(0)
    a, b = bernoulli(rng, 0.5, 5_000), bernoulli(rng, 0.4, 5_000)
    one, ten = PairedEvidence(0.05), PairedEvidence(0.05, 10.0)
    one.update(a, b)
    ten.update(10 * a, 10 * b)
    assert ten.lower == pytest.approx(10 * one.lower)
    assert ten.upper == pytest.approx(10 * one.upper)
    assert ten.mean_gain == pytest.approx(10 * one.mean_gain)


def test_losses_beyond_the_bound_are_cut_to_it():
    wild, cut = PairedEvidence(0.05), PairedEvidence(0.05)
    wild.update(np.array([1e300, np.inf, 0.5, -3.0]), np.array([0.0, 0.5, -np.inf, 1.0]))
    cut.update(np.array([1.0, 1.0, 0.5, 0.0]), np.array([0.0, 0.5, 0.0, 1.0]))
    assert wild.mean_gain == cut.mean_gain
    assert wild.n == cut.n == 4


def test_pairs_with_nan_are_left_out_and_counted():
    evidence = PairedEvidence(0.05)
    evidence.update(np.array([np.nan, 0.5, 1.0, np.nan]), np.array([0.5, np.nan, 0.0, np.nan]))
    assert (evidence.n, evidence.left_out) == (1, 3)
    assert evidence.mean_gain == 1.0


loss = st.one_of(st.sampled_from([0.0, 1.0, np.nan]), st.floats(0, 1))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_pieces_equal_the_whole_bit_for_bit(data):
    pairs = data.draw(st.lists(st.tuples(loss, loss), max_size=50)) * data.draw(st.integers(1, 20))
    champion, challenger = np.array(pairs).reshape(-1, 2).T
    cuts = sorted(data.draw(st.lists(st.integers(0, len(pairs)), max_size=5)))
    whole, parts = PairedEvidence(0.1), PairedEvidence(0.1)
    whole.update(champion, challenger)
    for start, end in zip([0, *cuts], [*cuts, len(pairs)], strict=True):
        parts.update(champion[start:end], challenger[start:end])
        parts = PairedEvidence.from_state(parts.state())
    for name, value in whole.state().items():
        assert np.array_equal(value, parts.state()[name]), name


@settings(max_examples=200, deadline=None)
@given(
    gains=st.lists(st.floats(-1, 1), min_size=1, max_size=40),
    mean=st.floats(-0.95, 0.95),
)
def test_the_capital_counted_is_never_more_than_what_the_bets_earn(gains, mean):
    """The bets' true capital is a test martingale; what is counted must lie below it, and near it."""
    d = np.array(gains)
    sums = np.array([(d**k).sum() for k in range(1, 5)])
    counted = log_capital(sums, float(len(d)), mean, BETS, FOURTHS)
    each = np.log1p(np.outer(BETS, (d - mean) / (1 + mean))).sum(axis=1)
    earned = each.max() + math.log(np.exp(each - each.max()).mean())
    assert counted <= earned + 1e-9
    small = np.abs(d - mean).max() / (1 + mean) < 1
    if small:
        assert counted >= earned - 0.15 * len(d)


def test_the_state_is_a_copy():
    evidence = PairedEvidence(0.05)
    evidence.update(np.ones(100), np.zeros(100))
    state = evidence.state()
    evidence.update(np.zeros(500), np.ones(500))
    assert PairedEvidence.from_state(state).n == 100
    assert PairedEvidence.from_state(state).lower > 0.5


def test_nothing_seen_proves_nothing():
    evidence = PairedEvidence(0.05)
    assert (evidence.n, evidence.mean_gain, evidence.lower, evidence.upper) == (0, 0.0, -1.0, 1.0)
    assert not evidence.wins()
    assert not evidence.loses()


def test_extreme_streams_stay_finite():
    for champion, challenger in ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.0, 0.0)):
        evidence = PairedEvidence(1e-9)
        evidence.update(np.full(100_000, champion), np.full(100_000, challenger))
        assert -1 <= evidence.lower <= champion - challenger <= evidence.upper <= 1
        assert evidence.upper - evidence.lower < 1.1


@pytest.mark.parametrize(("alpha", "bound"), [(0, 1), (1, 1), (0.1, 0), (0.1, math.inf), (math.nan, 1)])
def test_wrong_settings_are_refused(alpha, bound):
    with pytest.raises(ValueError, match=r"alpha|bound"):
        PairedEvidence(alpha, bound)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="2 losses of the champion, 3"):
        PairedEvidence(0.05).update(np.zeros(2), np.zeros(3))
