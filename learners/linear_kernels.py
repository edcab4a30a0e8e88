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
def _score(
    mode: int,
    X: FloatArray,
    codes: IntArray,
    i: int,
    means: FloatArray,
    stds: FloatArray,
    weights: FloatArray,  # [numeric features, outputs]
    category_weights: FloatArray,  # [slots, outputs], each times `shrink`
    bias: FloatArray,
    seen: BoolArray,
    shrink: float,
    out: FloatArray,  # row i is written
) -> None:
    """Scores of row i; every one finite whatever the weights and values are."""
    width = out.shape[1]
    known = min(width, bias.shape[0]) if mode == SOFTMAX else 1
    first = 1 if mode == LOGISTIC else 0
    for k in range(known):
        total = bias[k]
        for j in range(X.shape[1]):
            x = X[i, j]
            if x == x and stds[j] > 0.0:  # noqa: PLR0124  # NaN: missing
                total += weights[j, k] * ((x - means[j]) / stds[j])
        for j in range(codes.shape[1]):
            if codes[i, j] >= 0:
                total += category_weights[codes[i, j], k] * shrink
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
def _rescale(
    scale: bool,
    X: FloatArray,
    i: int,
    counts: IntArray,
    means: FloatArray,
    variances: FloatArray,
    work: FloatArray,
) -> bool:
    """Works out the scaler as it is after row i, and the row's scaled values (0: missing); False where
    one is not finite."""
    finite = True
    for j in range(X.shape[1]):
        x = X[i, j]
        if x != x:  # noqa: PLR0124  # NaN: missing
            work[3, j] = 0.0
        elif scale:
            count = counts[j] + 1.0
            old = means[j]
            mean = old + (x - old) / count
            variance = variances[j] + ((x - old) * (x - mean) - variances[j]) / count
            std = math.sqrt(variance)
            scaled = (x - mean) / std if std > 0.0 else 0.0
            work[0, j], work[1, j], work[2, j], work[3, j] = mean, variance, std, scaled
            finite &= math.isfinite(mean) and math.isfinite(variance) and math.isfinite(scaled)
        else:
            work[3, j] = x
            finite &= math.isfinite(x)
    return finite


@njit(cache=True, nogil=True, error_model="numpy")
def _learn(  # noqa: PLR0912  # one pass over the row, in River's order of updates
    mode: int,
    lr: float,
    intercept_lr: float,
    l2: float,
    scale: bool,
    X: FloatArray,
    codes: IntArray,
    i: int,
    y: float,
    counts: IntArray,
    means: FloatArray,
    variances: FloatArray,
    stds: FloatArray,
    weights: FloatArray,
    category_weights: FloatArray,
    bias: FloatArray,
    seen: BoolArray,
    scalars: FloatArray,
    work: FloatArray,  # [4, numeric features]: new means, variances and deviations, scaled values
    raw: FloatArray,  # [outputs]
) -> bool:
    """One step on row i; False, and nothing changed, where it would leave a non-finite number."""
    n, m, outputs = X.shape[1], codes.shape[1], bias.shape[0]
    shrink = scalars[SHRINK]
    finite = True
    if not _rescale(scale, X, i, counts, means, variances, work):
        return False
    for k in range(outputs):
        total = bias[k]
        for j in range(n):
            total += weights[j, k] * work[3, j]
        for j in range(m):
            if codes[i, j] >= 0:
                total += category_weights[codes[i, j], k] * shrink
        raw[k] = total
    if not _gradients(mode, y, bias, seen, raw):
        return False
    # All category weights decay at each step, in the row or not: one factor stands for all of them.
    decayed = shrink * (1.0 - lr * l2)
    for k in range(outputs):
        if mode == SOFTMAX and not seen[k] and k != int(y):
            continue
        for j in range(n):
            finite &= math.isfinite(weights[j, k] - lr * (work[3, j] * raw[k] + l2 * weights[j, k]))
        step = m * abs(lr * raw[k] / decayed)  # values of one row may share a slot, hence `m` steps
        for j in range(m):
            if codes[i, j] >= 0:
                finite &= math.isfinite(abs(category_weights[codes[i, j], k]) + step)
    if not finite:
        return False
    for k in range(outputs):
        if mode == SOFTMAX and not seen[k] and k != int(y):
            continue
        for j in range(n):
            if not math.isnan(X[i, j]):
                weights[j, k] -= lr * (work[3, j] * raw[k] + l2 * weights[j, k])
        step = lr * raw[k] / decayed
        for j in range(m):
            if codes[i, j] >= 0:
                category_weights[codes[i, j], k] -= step
    if scale:
        for j in range(n):
            if not math.isnan(X[i, j]):
                counts[j] += 1
                means[j], variances[j], stds[j] = work[0, j], work[1, j], work[2, j]
    if decayed < _FLOOR:
        category_weights[:, :] *= decayed
        decayed = 1.0
    scalars[SHRINK] = decayed
    if mode == SOFTMAX:
        seen[int(y)] = True
    else:
        bias[0] -= intercept_lr * raw[0]
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def predict(
    mode: int,
    X: FloatArray,
    codes: IntArray,
    means: FloatArray,
    stds: FloatArray,
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
            mode, X, codes, i, means, stds, weights, category_weights, bias, seen, scalars[SHRINK], out
        )  # fmt: skip


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
    stds: FloatArray,
    weights: FloatArray,
    category_weights: FloatArray,
    bias: FloatArray,
    seen: BoolArray,
    scalars: FloatArray,
    out: FloatArray,
) -> None:
    """`order[t]` False: scores the next event into `out`; True: learns the next example."""
    work = np.zeros((4, X.shape[1]))
    raw = np.zeros(bias.shape[0])
    event = example = 0
    for t in range(order.shape[0]):
        if order[t]:
            learned = _learn(
                mode, settings[LR], settings[INTERCEPT_LR], settings[L2], settings[SCALE] != 0.0,
                X_examples, codes_examples, example, y[example], counts, means, variances, stds, weights,
                category_weights, bias, seen, scalars, work, raw,
            )  # fmt: skip
            if not learned:
                scalars[REFUSED] += 1.0
            example += 1
        else:
            _score(
                mode, X, codes, event, means, stds, weights, category_weights, bias, seen,
                scalars[SHRINK], out,
            )  # fmt: skip
            event += 1
