"""The arithmetic of PairedEvidence, compiled. `sums` holds the first four power sums of the gains."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from core.plain import FloatArray, IntArray

# Bets on a gain, each twice the one before: the best bet for a gain g with variance v is about g / v.
BETS: FloatArray = 0.005 * 2.0 ** np.arange(8, dtype=np.float64)
# The largest c with log(1 + y) >= y - y**2/2 + y**3/3 - c y**4 for all y >= -bet.
FOURTHS: FloatArray = -(np.log1p(-BETS) + BETS + BETS**2 / 2 + BETS**3 / 3) / BETS**4

LOOK_EVERY = 64  # pairs: the bounds are looked at each time so many more have come
STEPS = 24  # of bisection: bounds are exact to about 1e-7 of their distance from the mean

N, LEFT_OUT = 0, 1
LOWER, UPPER = 0, 1


@njit(cache=True, nogil=True, error_model="numpy")
def log_capital(sums: FloatArray, n: float, mean: float, bets: FloatArray, fourths: FloatArray) -> float:
    """The logarithm of a lower bound of the capital of one who bets that gains exceed `mean` (-1, 1)."""
    s1, s2, s3, s4 = sums[0], sums[1], sums[2], sums[3]
    m2 = mean * mean
    unit = 1.0 + mean  # no gain lies further than this below the mean
    p1 = (s1 - n * mean) / unit
    p2 = (s2 - 2.0 * mean * s1 + n * m2) / unit**2
    p3 = (s3 - 3.0 * mean * s2 + 3.0 * m2 * s1 - n * m2 * mean) / unit**3
    p4 = (s4 - 4.0 * mean * s3 + 6.0 * m2 * s2 - 4.0 * m2 * mean * s1 + n * m2 * m2) / unit**4
    largest = -np.inf
    capitals = np.empty(bets.shape[0])
    for i in range(bets.shape[0]):
        y = bets[i]
        capitals[i] = y * p1 - y**2 / 2.0 * p2 + y**3 / 3.0 * p3 - fourths[i] * y**4 * p4
        largest = max(largest, capitals[i])
    total = 0.0
    for i in range(bets.shape[0]):
        total += math.exp(capitals[i] - largest)
    return float(largest + math.log(total / bets.shape[0]))


@njit(cache=True, nogil=True, error_model="numpy")
def raised(
    sums: FloatArray, n: float, bound: float, limit: float, bets: FloatArray, fourths: FloatArray
) -> float:
    """A lower bound of the mean gain that is proven now, or `bound` where that is the higher one."""
    if bound > -1.0 and log_capital(sums, n, bound, bets, fourths) < limit:
        return bound
    mean = float(sums[0] / n)
    lowest = max(bound, -0.99)
    near, far = 0.0, 1e-4
    while True:  # the mean itself is never refuted: go down from it until something is
        far = min(far, mean - lowest)
        if far <= near:
            return bound
        if log_capital(sums, n, mean - far, bets, fourths) >= limit:
            break
        near, far = far, 2.0 * far
    for _ in range(STEPS):
        middle = 0.5 * (near + far)
        if log_capital(sums, n, mean - middle, bets, fourths) >= limit:
            far = middle
        else:
            near = middle
    return max(bound, float(mean - far))


@njit(cache=True, nogil=True, error_model="numpy")
def collect(
    gains: FloatArray,
    counts: IntArray,
    sums: FloatArray,
    bounds: FloatArray,
    limit: float,
    bets: FloatArray,
    fourths: FloatArray,
) -> None:
    """Adds gains in [-1, 1] (NaN: left out) one by one; the arrays are changed in place."""
    mirrored = np.empty(4)
    for i in range(gains.shape[0]):
        gain = gains[i]
        if np.isnan(gain):
            counts[LEFT_OUT] += 1
            continue
        counts[N] += 1
        square = gain * gain
        sums[0] += gain
        sums[1] += square
        sums[2] += square * gain
        sums[3] += square * square
        if counts[N] % LOOK_EVERY != 0:
            continue
        n = float(counts[N])
        bounds[LOWER] = raised(sums, n, bounds[LOWER], limit, bets, fourths)
        mirrored[0], mirrored[1], mirrored[2], mirrored[3] = -sums[0], sums[1], -sums[2], sums[3]
        bounds[UPPER] = -raised(mirrored, n, -bounds[UPPER], limit, bets, fourths)
