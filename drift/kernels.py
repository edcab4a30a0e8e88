"""The detectors' inner loops, compiled: a whole array of losses in one call.

Both kernels go through the values in order and follow the arithmetic of the reference definitions step by
step (no fast-math), so results equal one value at a time, bit for bit. Both return
`(first, drifts, improvements, skipped)`: the index of the first drift (-1: none), how many drifts and
improvements there were, and how many values were not finite.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from core.plain import FloatArray, IntArray

# Squares of this, summed over any window, stay finite: a value beyond it counts as this large.
LARGEST = 1e100
# Buckets of level i summarise 2**i values: enough levels for any stream.
LEVELS = 48

# Where numbers lie in ADWIN's arrays.
TOTAL, VARIANCE, WIDTH = 0, 1, 2
TICK, USED, STALE = 0, 1, 2

# ... and in Page-Hinkley's.
MEAN, SUM, LOWEST = 0, 1, 2
SEEN, PH_STALE = 0, 1

Counts = tuple[int, int, int, int]


@njit(cache=True, nogil=True, error_model="numpy")
def _insert(
    value: float,
    totals: FloatArray,
    variances: FloatArray,
    sizes: IntArray,
    window: FloatArray,
    marks: IntArray,
) -> None:
    """Adds a value as a bucket of its own, then merges pairs of the oldest buckets upwards."""
    totals[0, sizes[0]] = value
    variances[0, sizes[0]] = 0.0
    sizes[0] += 1
    width = window[WIDTH] + 1.0
    if width > 1.0:
        deviation = value - window[TOTAL] / (width - 1.0)
        window[VARIANCE] += (width - 1.0) * deviation * deviation / width
    window[WIDTH] = width
    window[TOTAL] += value

    full = totals.shape[1]
    level = 0
    while sizes[level] == full and level + 1 < totals.shape[0]:
        members = 2.0**level
        apart = totals[level, 0] / members - totals[level, 1] / members
        between = members * 0.5 * apart * apart
        above = level + 1
        if above >= marks[USED]:
            marks[USED] = above + 1
            sizes[above] = 0
        place = sizes[above]
        totals[above, place] = totals[level, 0] + totals[level, 1]
        variances[above, place] = variances[level, 0] + variances[level, 1] + between
        sizes[above] = place + 1
        for i in range(2, full):
            totals[level, i - 2] = totals[level, i]
            variances[level, i - 2] = variances[level, i]
        sizes[level] = full - 2
        level = above


@njit(cache=True, nogil=True, error_model="numpy")
def _drop_oldest(
    totals: FloatArray, variances: FloatArray, sizes: IntArray, window: FloatArray, marks: IntArray
) -> None:
    """Takes the oldest bucket out of the window."""
    top = marks[USED] - 1
    members = 2.0**top
    total = totals[top, 0]
    window[WIDTH] -= members
    window[TOTAL] -= total
    width = window[WIDTH]
    apart = total / members - window[TOTAL] / width
    window[VARIANCE] -= variances[top, 0] + members * width * apart * apart / (members + width)
    for i in range(1, sizes[top]):
        totals[top, i - 1] = totals[top, i]
        variances[top, i - 1] = variances[top, i]
    sizes[top] -= 1
    if sizes[top] == 0:
        marks[USED] = top


@njit(cache=True, nogil=True, error_model="numpy")
def _cut(
    totals: FloatArray, sizes: IntArray, window: FloatArray, marks: IntArray, delta: float, shortest: float
) -> int:
    """Looks for a point that splits the window into two different halves, from the oldest bucket on:
    0 there is none, 1 the newer half is higher, -1 it is lower."""
    log_term = np.log(2.0 * np.log(window[WIDTH]) / delta)
    variance = window[VARIANCE] / window[WIDTH]
    older, newer = 0.0, window[WIDTH]
    older_total, newer_total = 0.0, window[TOTAL]
    for level in range(marks[USED] - 1, -1, -1):
        members = 2.0**level
        for i in range(sizes[level]):
            if level == 0 and i == sizes[0] - 1:
                return 0
            older += members
            newer -= members
            older_total += totals[level, i]
            newer_total -= totals[level, i]
            if newer < shortest or older < shortest:
                continue
            inverse = 1.0 / (older - shortest + 1.0) + 1.0 / (newer - shortest + 1.0)
            bound = np.sqrt(2.0 * inverse * variance * log_term) + 2.0 / 3.0 * log_term * inverse
            difference = older_total / older - newer_total / newer
            if abs(difference) > bound:
                return -1 if difference > 0.0 else 1
    return 0


@njit(cache=True, nogil=True, error_model="numpy")
def adwin(
    values: FloatArray,
    totals: FloatArray,
    variances: FloatArray,
    sizes: IntArray,
    window: FloatArray,
    marks: IntArray,
    delta: float,
    clock: int,
    shortest: float,
    grace: float,
) -> Counts:
    """ADWIN2 over the values; the arrays are its state, changed in place."""
    first, drifts, improvements, skipped = -1, 0, 0, 0
    for i in range(values.shape[0]):
        value = values[i]
        if not np.isfinite(value):
            skipped += 1
            continue
        value = min(max(value, -LARGEST), LARGEST)
        if marks[STALE]:  # the value before this one was a change: the window starts anew
            window[:] = 0.0
            sizes[:] = 0
            marks[TICK], marks[USED], marks[STALE] = 0, 1, 0
        _insert(value, totals, variances, sizes, window, marks)
        marks[TICK] += 1
        if marks[TICK] % clock != 0 or window[WIDTH] <= grace:
            continue
        direction = _cut(totals, sizes, window, marks, delta, shortest)
        if direction == 0:
            continue
        cut = direction
        while cut != 0:
            _drop_oldest(totals, variances, sizes, window, marks)
            cut = _cut(totals, sizes, window, marks, delta, shortest)
        marks[STALE] = 1
        if direction < 0:
            improvements += 1
            continue
        drifts += 1
        if first < 0:
            first = i
    return first, drifts, improvements, skipped


@njit(cache=True, nogil=True, error_model="numpy")
def page_hinkley(
    values: FloatArray,
    sums: FloatArray,
    marks: IntArray,
    min_instances: int,
    delta: float,
    threshold: float,
    alpha: float,
) -> Counts:
    """The Page-Hinkley test for an increase over the values; the arrays are its state, changed in place."""
    first, drifts, skipped = -1, 0, 0
    for i in range(values.shape[0]):
        value = values[i]
        if not np.isfinite(value):
            skipped += 1
            continue
        value = min(max(value, -LARGEST), LARGEST)
        if marks[PH_STALE]:
            sums[:] = 0.0
            marks[:] = 0
        marks[SEEN] += 1
        sums[MEAN] += (1.0 / marks[SEEN]) * (value - sums[MEAN])
        sums[SUM] = alpha * sums[SUM] + (value - sums[MEAN]) - delta
        if marks[SEEN] == 1 or sums[SUM] < sums[LOWEST]:
            sums[LOWEST] = sums[SUM]
        if marks[SEEN] >= min_instances and sums[SUM] - sums[LOWEST] > threshold:
            marks[PH_STALE] = 1
            drifts += 1
            if first < 0:
                first = i
    return first, drifts, 0, skipped
