"""Standard scaling and logistic, softmax or linear regression by stochastic gradient descent, compiled.

Equal to River's `(numbers | StandardScaler) + (strings | OneHotEncoder) | LogisticRegression` (or
SoftmaxRegression, LinearRegression), one event at a time, within rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from core.batch import Batch, Predictions
from core.errors import ConfigError, CorruptSnapshot
from core.plain import BoolArray, FloatArray, IntArray, State
from core.schema import Feature, Schema, Task
from learners import linear_kernels as kernels
from learners.vocabulary import OVERFLOW, Vocabulary

DEFAULTS: Final[dict[str, float | int | bool]] = {
    "lr": 0.01,
    "intercept_lr": 0.01,
    "l2": 0.0,
    "scale": True,
    "max_categories": 65_536,
}
_MODES: Final[dict[Task, int]] = {"binary": 0, "regression": 1, "multiclass": 2}  # as states name them
_FORMAT: Final = 1


def check(settings: Mapping[str, Any], schema: Schema) -> list[str]:
    """What is wrong with these settings, each problem in words; empty where nothing is."""
    found = [
        f"learner.{key}: unknown setting; a linear learner has {', '.join(DEFAULTS)}"
        for key in settings
        if key not in DEFAULTS
    ]
    for key in ("lr", "intercept_lr", "l2"):
        value = settings.get(key, DEFAULTS[key])
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            found.append(f"learner.{key}: a number from 0 on, not {value!r}")
    if not found and settings.get("lr", 0.01) * settings.get("l2", 0.0) >= 1:
        found.append("learner.l2: below 1 / lr, or every step would overshoot zero")
    if not isinstance(settings.get("scale", True), bool):
        found.append(f"learner.scale: true or false, not {settings['scale']!r}")
    cap = settings.get("max_categories", DEFAULTS["max_categories"])
    if isinstance(cap, bool) or not isinstance(cap, int) or not 0 <= cap <= 10_000_000:
        found.append(f"learner.max_categories: a whole number from 0 to 10,000,000, not {cap!r}")
    if schema.open:
        found.append(
            'learner.kind: "linear" needs typed features; name them instead of features = "any", or take '
            'kind = "river"'
        )
    elif schema.anys:
        names = ", ".join(f.name for f in schema.anys)
        found.append(
            f'learner.kind: "linear" takes numbers and categories; give {names} one of float, int, bool, '
            'category instead of any, or take kind = "river"'
        )
    return found


class LinearLearner:
    """A missing feature neither contributes nor is learned; a category never learned contributes nothing.
    An example that would leave a non-finite number is not learned, and counted in `refused`."""

    def __init__(self, settings: Mapping[str, Any], schema: Schema, task: Task, state: State | None) -> None:
        if found := check(settings, schema):
            raise ConfigError(found)
        chosen = {**DEFAULTS, **settings}
        self._mode = _MODES[task]
        self._softmax, self._logistic = task == "multiclass", task == "binary"
        self._known_width = {"binary": 2, "regression": 1, "multiclass": 0}[task]  # 0: as batches say
        self._settings = np.array(
            [chosen["lr"], chosen["intercept_lr"], chosen["l2"], chosen["scale"]], dtype=np.float64
        )
        numbers, categories, cap = len(schema.numeric), len(schema.categories), int(chosen["max_categories"])
        self._categories = categories
        if state is None:
            outputs = 0 if self._softmax else 1
            self._vocabulary = Vocabulary(categories, cap)
            self._table = np.zeros((kernels.WEIGHTS + outputs, numbers))
            self._category_weights = np.zeros((self._vocabulary.slots, outputs))
            self._outputs = np.zeros((2, outputs))
            self._scalars = np.array([1.0, 0.0])
        else:
            self._restore(state, numbers, categories, cap)
        # Without scaling, values pass as they are: mean 0, deviation 1.
        self._table[kernels.STD] = np.sqrt(self._table[kernels.VARIANCE]) if chosen["scale"] else 1.0

    @property
    def refused(self) -> int:
        """Examples not learned because they would have left a non-finite number."""
        return int(self._scalars[kernels.REFUSED])

    @property
    def overflowed(self) -> int:
        """Category values learned in a shared slot, past `max_categories`."""
        return self._vocabulary.overflowed

    def predict(self, batch: Batch) -> Predictions:
        """See Learner."""
        X, n = batch.X, len(batch.ids)
        codes = self._vocabulary.known(batch.objects) if self._categories else _no_codes(n)
        out = np.empty((n, self._known_width or batch.n_classes))
        table, weights, outputs, scalars = self._table, self._category_weights, self._outputs, self._scalars
        if self._softmax:
            kernels.predict_classes(_plain(X), codes, table, weights, outputs, scalars, out)
        else:
            kernels.predict(self._logistic, _plain(X), codes, table, weights, outputs, scalars, out)
        return Predictions(out)

    def learn(self, batch: Batch) -> None:
        """See Learner."""
        n = len(batch.ids)
        codes = self._prepare(batch)
        self._run(np.ones(n, dtype=np.bool_), batch.X[:0], codes[:0], batch, codes, self._out(0, batch))

    def interleave(self, events: Batch, examples: Batch, order: BoolArray) -> Predictions:
        """See Learner."""
        known = self._prepare(examples)
        if not self._categories:
            codes = _no_codes(len(events.ids))
        elif events.objects is examples.objects:
            codes = known
        else:
            # Values first learned within this pass have weight zero until they are.
            codes = self._vocabulary.known(events.objects)
        out = self._out(len(events.ids), examples)
        self._run(order, events.X, codes, examples, known, out)
        return Predictions(out)

    def state(self) -> State:
        """See Learner."""
        table, slots = self._table, self._category_weights[: self._vocabulary.slots]
        return {
            "kind": "linear",
            "format": _FORMAT,
            "mode": self._mode,
            "counts": table[kernels.COUNT].astype(np.int64),
            "means": table[kernels.MEAN].copy(),
            "variances": table[kernels.VARIANCE].copy(),
            "weights": table[kernels.WEIGHTS :].T.copy(),
            "vocabulary": self._vocabulary.state(),
            "category_weights": slots[OVERFLOW:].copy(),
            "shared_weights": slots[:OVERFLOW].copy() if self.overflowed else slots[:0].copy(),
            "bias": self._outputs[kernels.BIAS].copy(),
            "seen": self._outputs[kernels.SEEN] > 0.0,
            "shrink": float(self._scalars[kernels.SHRINK]),
            "refused": self.refused,
        }

    def _restore(self, state: State, numbers: int, categories: int, cap: int) -> None:
        if (state["kind"], state["format"], state["mode"]) != ("linear", _FORMAT, self._mode):
            raise CorruptSnapshot(
                f"state of a {state['kind']} learner, format {state['format']}, mode {state['mode']}: "
                f"not linear, {_FORMAT}, {self._mode}"
            )
        self._vocabulary = Vocabulary(categories, cap, state["vocabulary"])
        bias, seen = state["bias"], state["seen"]
        outputs = len(bias)
        parts = (state["counts"], state["means"], state["variances"], state["weights"])
        shapes = tuple(part.shape for part in parts)
        if shapes != ((numbers,), (numbers,), (numbers,), (numbers, outputs)) or len(seen) != outputs:
            raise CorruptSnapshot(
                f"state of a linear learner: shapes {shapes} for {numbers} numeric features"
            )
        self._table = np.zeros((kernels.WEIGHTS + outputs, numbers))
        self._table[kernels.COUNT], self._table[kernels.MEAN], self._table[kernels.VARIANCE] = parts[:3]
        self._table[kernels.WEIGHTS :] = state["weights"].T
        self._outputs = np.array([bias, seen], dtype=np.float64)
        self._scalars = np.array([state["shrink"], float(state["refused"])])
        table = np.zeros((self._vocabulary.slots, outputs))
        table[OVERFLOW:] = state["category_weights"]
        shared = state["shared_weights"]
        table[: len(shared)] = shared
        self._category_weights = table

    def _out(self, n: int, examples: Batch) -> FloatArray:
        return np.empty((n, self._known_width or examples.n_classes))

    def _prepare(self, examples: Batch) -> IntArray:
        """Codes of examples about to be learned, with room for their new categories and classes."""
        if examples.y is None:
            raise ValueError(f"{len(examples)} rows to learn, and no labels")
        codes = (
            self._vocabulary.learned(examples.objects) if self._categories else _no_codes(len(examples.ids))
        )
        outputs = self._outputs.shape[1]
        if self._softmax and len(examples.y):
            outputs = max(outputs, int(examples.y.max()) + 1)
        slots = len(self._category_weights)
        if self._vocabulary.slots > slots:
            slots = max(self._vocabulary.slots, slots + slots // 2)
        if outputs > self._outputs.shape[1]:
            self._table = _grown(self._table, kernels.WEIGHTS + outputs, self._table.shape[1])
            self._outputs = _grown(self._outputs, 2, outputs)
        if self._category_weights.shape != (slots, outputs):
            self._category_weights = _grown(self._category_weights, slots, outputs)
        return codes

    def _run(
        self,
        order: BoolArray,
        X: FloatArray,
        codes: IntArray,
        examples: Batch,
        known: IntArray,
        out: FloatArray,
    ) -> None:
        if (
            examples.y is None
            or np.count_nonzero(order) != len(examples.ids)
            or len(order) != len(X) + len(known)
        ):
            raise ValueError(f"an order of {len(order)} for {len(X)} events and {len(examples)} examples")
        rows = (order, _plain(X), codes, _plain(examples.X), known, examples.y.astype(np.float64))
        model = (self._table, self._category_weights, self._outputs, self._scalars)
        if self._softmax:
            kernels.interleave_classes(self._settings, *rows, *model, out)
        else:
            kernels.interleave(self._logistic, self._settings, *rows, *model, out)


def _plain(X: FloatArray) -> FloatArray:
    """The matrix as the kernels are compiled for: C order, writeable."""
    return X if X.flags.carray else np.array(X, order="C")


def _no_codes(n: int) -> IntArray:
    return np.empty((n, 0), dtype=np.int64)


def _grown(table: FloatArray, rows: int, columns: int) -> FloatArray:
    larger = np.zeros((rows, columns))
    larger[: table.shape[0], : table.shape[1]] = table
    return larger


def warm_up(task: Task) -> None:
    """Compiles the kernels (or loads them from disk), so that no later call waits for it."""
    schema = Schema((Feature("x", "float"), Feature("c", "category")))
    objects = np.empty((1, 1), dtype=object)
    objects[0, 0] = "a"
    y = np.zeros(1) if task == "regression" else np.zeros(1, dtype=np.int64)
    batch = Batch(np.array(["0"], dtype=object), np.zeros(1, dtype=np.int64), np.zeros((1, 1)), objects, y, 2)
    learner = LinearLearner({}, schema, task, None)
    learner.interleave(batch, batch, np.array([False, True]))
    learner.predict(batch)
