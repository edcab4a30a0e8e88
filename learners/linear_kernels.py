"""Compiled test-then-train passes of the linear learner: standard scaling, then logistic, linear or softmax
regression, one stochastic gradient step an example.

The arithmetic follows River 0.26's StandardScaler, OneHotEncoder, LogisticRegression, LinearRegression and
SoftmaxRegression in their order of updates. Running means and variances: Welford (1962), as
https://www.jstor.org/stable/1266577 gives them, kept as population variances.

A row that would make any number of the model non-finite changes nothing, and is counted.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import njit

from core.plain import BoolArray, FloatArray, IntArray

LOGISTIC: Final = 0
LINEAR: Final = 1
SOFTMAX: Final = 2

# Positions in `settings` and `scalars`.
LR, INTERCEPT_LR, L2, SCALE = 0, 1, 2, 3
SHRINK, REFUSED = 0, 1

_CLIP: Final = 1e12  # River's bound on a gradient
_LARGEST: Final = np.finfo(np.float64).max
_FLOOR: Final = 1e-100  # of the common factor of all category weights, before it is multiplied out


@njit(cache=True, nogil=True, error_model="numpy")
def _scaled(x: float, mean: float, variance: float, scale: float) -> float:
    if scale == 0.0:
        return x
    return (x - mean) / math.sqrt(variance) if variance > 0.0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _score(
    mode: int,
    settings: FloatArray,
    X: FloatArray,
    codes: IntArray,
    i: int,
    means: FloatArray,
    variances: FloatArray,
    weights: FloatArray,  # [numeric features, outputs]
    category_weights: FloatArray,  # [slots, outputs], each times scalars[SHRINK]
    bias: FloatArray,
    seen: BoolArray,
    scalars: FloatArray,
    out: FloatArray,  # row i is written
) -> None:
    """Scores of row i; every one finite whatever the weights and values are."""
    scale, shrink = settings[SCALE], scalars[SHRINK]
    width = out.shape[1]
    known = min(width, bias.shape[0]) if mode == SOFTMAX else 1
    first = 1 if mode == LOGISTIC else 0
    for k in range(known):
        total = 0.0
        for j in range(X.shape[1]):
            x = X[i, j]
            if not math.isnan(x):
                total += weights[j, k] * _scaled(x, means[j], variances[j], scale)
        for j in range(codes.shape[1]):
            if codes[i, j] >= 0:
                total += category_weights[codes[i, j], k] * shrink
        total += bias[k]
        if math.isnan(total):
            total = 0.0
        out[i, first + k] = min(max(total, -_LARGEST), _LARGEST)
    if mode == LOGISTIC:
        out[i, 1] = 1.0 / (1.0 + math.exp(-out[i, 1]))
        out[i, 0] = 1.0 - out[i, 1]
    elif mode == SOFTMAX:
        _softmax(out[i], seen, known)


@njit(cache=True, nogil=True, error_model="numpy")
def _softmax(logits: FloatArray, seen: BoolArray, known: int) -> None:
    """Probabilities in place, of the classes seen; zero for the others."""
    top = -np.inf
    for k in range(known):
        if seen[k]:
            top = max(top, logits[k])
    total = 0.0
    for k in range(logits.shape[0]):
        logits[k] = math.exp(logits[k] - top) if k < known and seen[k] else 0.0
        total += logits[k]
    if total > 0.0:
        for k in range(known):
            logits[k] /= total


@njit(cache=True, nogil=True, error_model="numpy")
def _gradients(mode: int, y: float, bias: FloatArray, seen: BoolArray, raw: FloatArray) -> bool:
    """Replaces the raw outputs by the gradient of the loss to each; False where one is not finite."""
    if not math.isfinite(y):
        return False
    for k in range(raw.shape[0]):
        if not math.isfinite(raw[k]):
            return False
    if mode == LOGISTIC:
        sign = 1.0 if y != 0.0 else -1.0
        z = raw[0] * sign
        if z > 18.0:
            raw[0] = -sign * math.exp(-z)
        elif z < -18.0:
            raw[0] = -sign
        else:
            raw[0] = -sign / (math.exp(z) + 1.0)
    elif mode == LINEAR:
        raw[0] = min(max(2.0 * (raw[0] - y), -_CLIP), _CLIP)
    else:
        _softmax(raw, seen, bias.shape[0])
        for k in range(raw.shape[0]):
            target = 1.0 if k == int(y) else 0.0
            if seen[k] or target == 1.0:
                raw[k] = min(max(raw[k], 1e-15), 1.0 - 1e-15) - target
            else:
                raw[k] = 0.0
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _learn(  # noqa: PLR0912  # one pass over the row, in River's order of updates
    mode: int,
    settings: FloatArray,
    X: FloatArray,
    codes: IntArray,
    i: int,
    y: float,
    counts: IntArray,
    means: FloatArray,
    variances: FloatArray,
    weights: FloatArray,
    category_weights: FloatArray,
    bias: FloatArray,
    seen: BoolArray,
    scalars: FloatArray,
    work: FloatArray,  # [3, numeric features]: new means, new variances, scaled values
    raw: FloatArray,  # [outputs]
    trial: FloatArray,  # [numeric features, outputs]: new weights
) -> bool:
    """One step on row i; False, and nothing changed, where it would leave a non-finite number."""
    lr, l2, scale = settings[LR], settings[L2], settings[SCALE]
    n, m, outputs = X.shape[1], codes.shape[1], bias.shape[0]
    shrink = scalars[SHRINK]
    for j in range(n):
        x = X[i, j]
        if math.isnan(x):
            continue
        if scale != 0.0:
            count = counts[j] + 1
            old = means[j]
            work[0, j] = old + (x - old) / count
            work[1, j] = variances[j] + ((x - old) * (x - work[0, j]) - variances[j]) / count
            if not (math.isfinite(work[0, j]) and math.isfinite(work[1, j])):
                return False
        work[2, j] = _scaled(x, work[0, j], work[1, j], scale)
        if not math.isfinite(work[2, j]):
            return False
    for k in range(outputs):
        total = bias[k]
        for j in range(n):
            if not math.isnan(X[i, j]):
                total += weights[j, k] * work[2, j]
        for j in range(m):
            if codes[i, j] >= 0:
                total += category_weights[codes[i, j], k] * shrink
        raw[k] = total
    if not _gradients(mode, y, bias, seen, raw):
        return False
    # All category weights decay at each step, seen in the row or not: one factor for all of them.
    decayed = shrink * (1.0 - lr * l2)
    for k in range(outputs):
        if mode == SOFTMAX and not seen[k] and k != int(y):
            continue
        for j in range(n):
            if not math.isnan(X[i, j]):
                trial[j, k] = weights[j, k] - lr * (work[2, j] * raw[k] + l2 * weights[j, k])
                if not math.isfinite(trial[j, k]):
                    return False
        for j in range(m):
            if codes[i, j] >= 0:
                # Two values of a row may share a slot, hence `m` steps.
                reach = abs(category_weights[codes[i, j], k]) + m * abs(lr * raw[k] / decayed)
                if not math.isfinite(reach):
                    return False
    for j in range(n):
        if math.isnan(X[i, j]):
            continue
        if scale != 0.0:
            counts[j] += 1
            means[j] = work[0, j]
            variances[j] = work[1, j]
        for k in range(outputs):
            if mode != SOFTMAX or seen[k] or k == int(y):
                weights[j, k] = trial[j, k]
    for j in range(m):
        if codes[i, j] >= 0:
            for k in range(outputs):
                if mode != SOFTMAX or seen[k] or k == int(y):
                    category_weights[codes[i, j], k] -= lr * raw[k] / decayed
    scalars[SHRINK] = decayed
    if decayed < _FLOOR:
        category_weights[:, :] *= decayed
        scalars[SHRINK] = 1.0
    if mode == SOFTMAX:
        seen[int(y)] = True
    else:
        bias[0] -= settings[INTERCEPT_LR] * raw[0]
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def predict(
    mode: int,
    settings: FloatArray,
    X: FloatArray,
    codes: IntArray,
    means: FloatArray,
    variances: FloatArray,
    weights: FloatArray,
    category_weights: FloatArray,
    bias: FloatArray,
    seen: BoolArray,
    scalars: FloatArray,
    out: FloatArray,
) -> None:
    """Scores of all rows into `out`."""
    for i in range(X.shape[0]):
        _score(
            mode, settings, X, codes, i, means, variances, weights, category_weights, bias, seen, scalars, out
        )


@njit(cache=True, nogil=True, error_model="numpy")
def interleave(
    mode: int,
    settings: FloatArray,
    order: BoolArray,
    X: FloatArray,
    codes: IntArray,
    X_examples: FloatArray,
    codes_examples: IntArray,
    y: FloatArray,
    counts: IntArray,
    means: FloatArray,
    variances: FloatArray,
    weights: FloatArray,
    category_weights: FloatArray,
    bias: FloatArray,
    seen: BoolArray,
    scalars: FloatArray,
    out: FloatArray,
) -> None:
    """`order[t]` False: scores the next event into `out`; True: learns the next example."""
    n, outputs = X.shape[1], bias.shape[0]
    work = np.zeros((3, n))
    raw = np.zeros(outputs)
    trial = np.zeros((n, outputs))
    event = example = 0
    for t in range(order.shape[0]):
        if order[t]:
            learned = _learn(
                mode, settings, X_examples, codes_examples, example, y[example], counts, means, variances,
                weights, category_weights, bias, seen, scalars, work, raw, trial,
            )  # fmt: skip
            if not learned:
                scalars[REFUSED] += 1.0
            example += 1
        else:
            _score(
                mode, settings, X, codes, event, means, variances, weights, category_weights, bias, seen,
                scalars, out,
            )  # fmt: skip
            event += 1
