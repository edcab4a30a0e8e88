"""Compiled test-then-train passes of the linear learner: standard scaling, then logistic, linear or softmax
regression, one stochastic gradient step an example.

The arithmetic follows River 0.26's StandardScaler, OneHotEncoder, LogisticRegression, LinearRegression and
SoftmaxRegression in their order of updates. Running means and variances: Welford (1962), as
https://www.jstor.org/stable/1266577 gives them, kept as population variances.

A row that would make any number of the model non-finite changes nothing, and is counted.

What is known of a numeric feature stands in one column of `table`: rows COUNT, MEAN, VARIANCE, STD, then
its weight for each output. The loops over features have no branches, so that LLVM makes them wide; sums run
in the order of the features, so that results do not depend on how wide. A step is written beside the table
that holds; then it holds itself, or, refused, is never looked at. Each pass is one function: arrays passed
to another one are counted as references, row by row, which takes longer than the arithmetic.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final

import numpy as np
from numba import njit

from core.plain import BoolArray, FloatArray, IntArray

# Rows of `table`: the weights of output k are row WEIGHTS + k.
COUNT, MEAN, VARIANCE, STD, WEIGHTS = 0, 1, 2, 3, 4
# Rows of `outputs`. SEEN is 1.0 for a class that has been learned.
BIAS, SEEN = 0, 1
# Positions in `settings` and `scalars`.
LR, INTERCEPT_LR, L2, SCALE = 0, 1, 2, 3
SHRINK, REFUSED = 0, 1

_CLIP: Final = 1e12  # River's bound on a gradient
_LARGEST: Final = np.finfo(np.float64).max
_FLOOR: Final = 1e-100  # of the common factor of all category weights, before it is multiplied out
_compiled = partial(njit, cache=True, nogil=True, error_model="numpy")


@_compiled()
def _rescaled(
    x: float, count: float, mean: float, variance: float, std: float
) -> tuple[float, float, float, float, float]:
    """A feature's count, mean, variance and deviation after value x, and x scaled by them; the same as
    before and 0 where x is missing."""
    missing = x != x  # noqa: PLR0124  # NaN: missing
    new_count = count + 1.0
    new_mean = mean + (x - mean) / new_count
    new_variance = variance + ((x - mean) * (x - new_mean) - variance) / new_count
    new_std = math.sqrt(new_variance)
    scaled = (x - new_mean) / new_std
    return (
        count if missing else new_count,
        mean if missing else new_mean,
        variance if missing else new_variance,
        std if missing else new_std,
        scaled if (not missing) & (new_std > 0.0) else 0.0,
    )


@_compiled()
def _part(x: float, mean: float, std: float, weight: float) -> float:
    """What one feature adds to an output."""
    part = weight * ((x - mean) / std)
    return part if (x == x) & (std > 0.0) else 0.0  # noqa: PLR0124


@_compiled()
def _stepped(x: float, weight: float, scaled: float, gradient: float, lr: float, l2: float) -> float:
    """A weight after one step; a missing feature's stays."""
    new = weight - lr * (scaled * gradient + l2 * weight)
    return weight if x != x else new  # noqa: PLR0124


@_compiled()
def _bounded(total: float) -> float:
    """A finite number, whatever it was."""
    return 0.0 if math.isnan(total) else min(max(total, -_LARGEST), _LARGEST)


@_compiled()
def _gradient(logistic: bool, total: float, y: float) -> float:
    """Of the loss to the output."""
    if not logistic:
        return min(max(2.0 * (total - y), -_CLIP), _CLIP)
    sign = 1.0 if y != 0.0 else -1.0
    z = total * sign
    if z > 18.0:
        return -sign * math.exp(-z)
    if z < -18.0:
        return -sign
    return -sign / (math.exp(z) + 1.0)


@_compiled()
def predict(
    logistic: bool,
    X: FloatArray,
    codes: IntArray,
    table: FloatArray,  # [5, numeric features]
    category_weights: FloatArray,  # [slots, 1], each times `shrink`
    outputs: FloatArray,  # [2, 1]
    scalars: FloatArray,
    out: FloatArray,
) -> None:
    """Scores of all rows by a model of one output; every one finite whatever its weights and the values."""
    n, m = X.shape[1], codes.shape[1]
    work = np.empty(n)
    for i in range(X.shape[0]):
        for j in range(n):
            work[j] = _part(X[i, j], table[MEAN, j], table[STD, j], table[WEIGHTS, j])
        total = outputs[BIAS, 0]
        for j in range(n):
            total += work[j]
        for j in range(m):
            if codes[i, j] >= 0:
                total += category_weights[codes[i, j], 0] * scalars[SHRINK]
        total = _bounded(total)
        if logistic:
            out[i, 1] = 1.0 / (1.0 + math.exp(-total))
            out[i, 0] = 1.0 - out[i, 1]
        else:
            out[i, 0] = total


@_compiled()
def interleave(  # noqa: PLR0912, PLR0915  # see the top
    logistic: bool,
    settings: FloatArray,
    order: BoolArray,
    X: FloatArray,
    codes: IntArray,
    X_examples: FloatArray,
    codes_examples: IntArray,
    y: FloatArray,
    table: FloatArray,
    category_weights: FloatArray,
    outputs: FloatArray,
    scalars: FloatArray,
    out: FloatArray,
) -> None:
    """`order[t]` False: scores the next event into `out`; True: learns the next example. One output."""
    n, m = X.shape[1], codes.shape[1]
    lr, intercept_lr, l2, scale = settings[LR], settings[INTERCEPT_LR], settings[L2], settings[SCALE] != 0.0
    tables = np.empty((2, WEIGHTS + 1, n))
    tables[:] = table
    work = np.empty(n)
    bias, shrink = outputs[BIAS, 0], scalars[SHRINK]
    at = event = example = 0
    for t in range(order.shape[0]):
        if not order[t]:
            i = event
            event += 1
            for j in range(n):
                work[j] = _part(X[i, j], tables[at, MEAN, j], tables[at, STD, j], tables[at, WEIGHTS, j])
            total = bias
            for j in range(n):
                total += work[j]
            for j in range(m):
                if codes[i, j] >= 0:
                    total += category_weights[codes[i, j], 0] * shrink
            total = _bounded(total)
            if logistic:
                out[i, 1] = 1.0 / (1.0 + math.exp(-total))
                out[i, 0] = 1.0 - out[i, 1]
            else:
                out[i, 0] = total
            continue
        i, to = example, 1 - at
        example += 1
        if scale:
            for j in range(n):
                count, mean, variance, std, scaled = _rescaled(
                    X_examples[i, j], tables[at, COUNT, j], tables[at, MEAN, j], tables[at, VARIANCE, j],
                    tables[at, STD, j],
                )  # fmt: skip
                tables[to, COUNT, j], tables[to, MEAN, j] = count, mean
                tables[to, VARIANCE, j], tables[to, STD, j] = variance, std
                work[j] = scaled
        else:
            for j in range(n):
                x = X_examples[i, j]
                work[j] = 0.0 if x != x else x  # noqa: PLR0124
        # Anything not finite, times zero, makes this NaN, and NaN it stays. A variance is not finite where
        # a mean is not, and a scaled value that is not finite shows in the total.
        check = y[i] * 0.0
        total = bias
        for j in range(n):
            check += tables[to, VARIANCE, j] * 0.0
            total += tables[at, WEIGHTS, j] * work[j]
        for j in range(m):
            if codes_examples[i, j] >= 0:
                total += category_weights[codes_examples[i, j], 0] * shrink
        gradient = _gradient(logistic, total, y[i])
        new_bias = bias - intercept_lr * gradient
        check += total * 0.0 + new_bias * 0.0
        for j in range(n):
            tables[to, WEIGHTS, j] = _stepped(
                X_examples[i, j], tables[at, WEIGHTS, j], work[j], gradient, lr, l2
            )
        for j in range(n):
            check += tables[to, WEIGHTS, j] * 0.0
        # All category weights decay at each step, in the row or not: one factor stands for all of them.
        decayed = shrink * (1.0 - lr * l2)
        step = lr * gradient / decayed
        for j in range(m):  # values of one row may share a slot, hence `m` steps
            if codes_examples[i, j] >= 0:
                check += (abs(category_weights[codes_examples[i, j], 0]) + m * abs(step)) * 0.0
        if check != 0.0:
            scalars[REFUSED] += 1.0
            continue
        at, bias = to, new_bias
        for j in range(m):
            if codes_examples[i, j] >= 0:
                category_weights[codes_examples[i, j], 0] -= step
        if decayed < _FLOOR:
            category_weights[:, :] *= decayed
            decayed = 1.0
        shrink = decayed
    table[:, :] = tables[at]
    outputs[BIAS, 0], scalars[SHRINK] = bias, shrink


@_compiled()
def _softmax(logits: FloatArray, outputs: FloatArray, known: int) -> None:
    """Probabilities in place, of the classes seen; zero for the others."""
    top = -np.inf
    for k in range(known):
        if outputs[SEEN, k] > 0.0:
            top = max(top, logits[k])
    total = 0.0
    for k in range(logits.shape[0]):
        logits[k] = math.exp(logits[k] - top) if k < known and outputs[SEEN, k] > 0.0 else 0.0
        total += logits[k]
    if total > 0.0:
        for k in range(known):
            logits[k] /= total


@_compiled()
def predict_classes(
    X: FloatArray,
    codes: IntArray,
    table: FloatArray,  # [4 + outputs, numeric features]
    category_weights: FloatArray,  # [slots, outputs], each times `shrink`
    outputs: FloatArray,  # [2, outputs]
    scalars: FloatArray,
    out: FloatArray,
) -> None:
    """Scores of all rows by a softmax regression; classes that it has no output for get 0."""
    n, m, known = X.shape[1], codes.shape[1], min(out.shape[1], outputs.shape[1])
    work = np.empty(n)
    for i in range(X.shape[0]):
        for k in range(known):
            for j in range(n):
                work[j] = _part(X[i, j], table[MEAN, j], table[STD, j], table[WEIGHTS + k, j])
            total = outputs[BIAS, k]
            for j in range(n):
                total += work[j]
            for j in range(m):
                if codes[i, j] >= 0:
                    total += category_weights[codes[i, j], k] * scalars[SHRINK]
            out[i, k] = _bounded(total)
        _softmax(out[i], outputs, known)


@_compiled()
def interleave_classes(  # noqa: PLR0912, PLR0915  # see the top
    settings: FloatArray,
    order: BoolArray,
    X: FloatArray,
    codes: IntArray,
    X_examples: FloatArray,
    codes_examples: IntArray,
    y: FloatArray,
    table: FloatArray,
    category_weights: FloatArray,
    outputs: FloatArray,
    scalars: FloatArray,
    out: FloatArray,
) -> None:
    """As `interleave`, by a softmax regression, which has a SEEN for each class and learns no bias."""
    n, m, width = X.shape[1], codes.shape[1], outputs.shape[1]
    lr, l2, scale = settings[LR], settings[L2], settings[SCALE] != 0.0
    tables = np.empty((2, WEIGHTS + width, n))
    tables[:] = table
    work, gradients = np.empty(n), np.empty(width)
    shrink, known = scalars[SHRINK], min(out.shape[1], width)
    at = event = example = 0
    for t in range(order.shape[0]):
        if not order[t]:
            i = event
            event += 1
            for k in range(known):
                for j in range(n):
                    work[j] = _part(
                        X[i, j], tables[at, MEAN, j], tables[at, STD, j], tables[at, WEIGHTS + k, j]
                    )
                total = outputs[BIAS, k]
                for j in range(n):
                    total += work[j]
                for j in range(m):
                    if codes[i, j] >= 0:
                        total += category_weights[codes[i, j], k] * shrink
                out[i, k] = _bounded(total)
            _softmax(out[i], outputs, known)
            continue
        i, to, label = example, 1 - at, int(y[example])
        example += 1
        if scale:
            for j in range(n):
                count, mean, variance, std, scaled = _rescaled(
                    X_examples[i, j], tables[at, COUNT, j], tables[at, MEAN, j], tables[at, VARIANCE, j],
                    tables[at, STD, j],
                )  # fmt: skip
                tables[to, COUNT, j], tables[to, MEAN, j] = count, mean
                tables[to, VARIANCE, j], tables[to, STD, j] = variance, std
                work[j] = scaled
        else:
            for j in range(n):
                x = X_examples[i, j]
                work[j] = 0.0 if x != x else x  # noqa: PLR0124
        check = y[i] * 0.0  # as in `interleave`
        for j in range(n):
            check += tables[to, VARIANCE, j] * 0.0
        for k in range(width):
            total = outputs[BIAS, k]
            for j in range(n):
                total += tables[at, WEIGHTS + k, j] * work[j]
            for j in range(m):
                if codes_examples[i, j] >= 0:
                    total += category_weights[codes_examples[i, j], k] * shrink
            check += total * 0.0
            gradients[k] = total
        if check != 0.0:
            scalars[REFUSED] += 1.0
            continue
        _softmax(gradients, outputs, width)
        decayed = shrink * (1.0 - lr * l2)
        for k in range(width):
            target = 1.0 if k == label else 0.0
            if outputs[SEEN, k] == 0.0 and target == 0.0:
                tables[to, WEIGHTS + k, :] = tables[at, WEIGHTS + k, :]
                continue
            gradient = min(max(gradients[k], 1e-15), 1.0 - 1e-15) - target
            gradients[k] = gradient
            for j in range(n):
                tables[to, WEIGHTS + k, j] = _stepped(
                    X_examples[i, j], tables[at, WEIGHTS + k, j], work[j], gradient, lr, l2
                )
            for j in range(n):
                check += tables[to, WEIGHTS + k, j] * 0.0
            step = m * abs(lr * gradient / decayed)
            for j in range(m):
                if codes_examples[i, j] >= 0:
                    check += (abs(category_weights[codes_examples[i, j], k]) + step) * 0.0
        if check != 0.0:
            scalars[REFUSED] += 1.0
            continue
        at = to
        outputs[SEEN, label] = 1.0
        for k in range(width):
            if outputs[SEEN, k] > 0.0:
                step = lr * gradients[k] / decayed
                for j in range(m):
                    if codes_examples[i, j] >= 0:
                        category_weights[codes_examples[i, j], k] -= step
        if decayed < _FLOOR:
            category_weights[:, :] *= decayed
            decayed = 1.0
        shrink = decayed
    table[:, :] = tables[at]
    scalars[SHRINK] = shrink
