"""Any River classifier or regressor behind the Learner port."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from river import base, compose

from core.batch import Batch, Predictions
from core.errors import ConfigError
from core.plain import BoolArray, FloatArray, State
from core.schema import Schema, Task
from learners import river_probe, river_state
from learners.river_probe import Changes
from learners.river_rows import Rows
from learners.river_steps import Builder

_KNOWN_ROWS: Final = 100_000  # shapes of rows remembered, for models that change at unseen ones
_CLOSE: Final = 1e-9


def check(settings: dict[str, Any], schema: Schema, task: Task) -> list[str]:
    """What is wrong with these settings, each problem in words; empty where nothing is."""
    builder = Builder(seed=0)
    found = [
        f"learner.{key}: unknown setting; a River learner has `steps`" for key in settings if key != "steps"
    ]
    model = builder.pipeline(settings.get("steps"), "steps")
    found += builder.problems
    if model is None:
        return found
    last = _last(model)
    unfit = _unfit(last, task)
    if unfit:
        return [*found, f"learner.steps: the last step, {type(last).__name__}, {unfit}"]
    return found + river_probe.problems(model, schema, task, _predictor(last))


class RiverLearner:
    """Feeds River one row at a time; results equal River's own.

    A row that River cannot take (it raises) is not learned, and counted in `refused`, which is part of
    the state. A prediction that raises or is not finite becomes the answer of a model that knows
    nothing, and is counted in `non_finite`, which is not.
    """

    def __init__(
        self, settings: dict[str, Any], schema: Schema, task: Task, seed: int, state: State | None
    ) -> None:
        builder = Builder(seed)
        model = builder.pipeline(settings.get("steps"), "steps")
        if model is None:
            raise ConfigError(builder.problems)
        if unfit := _unfit(_last(model), task):
            raise ConfigError(f"learner.steps: the last step, {type(_last(model)).__name__}, {unfit}")
        self._task = task
        self._rows = Rows(schema)
        self._raw = _predictor(_last(model))
        self._changes = river_probe.when_it_changes(model, schema, self._raw)
        self._known: set[tuple[Any, ...]] = set()
        self.model = model
        self.refused = 0
        self.learned = 0
        self.non_finite = 0
        if state is not None:
            self.model = river_state.decode(state["model"])
            self.refused = state["refused"]
            self.learned = state["learned"]

    def predict(self, batch: Batch) -> Predictions:
        """See Learner."""
        score, width = self._score, self._width(batch.n_classes)
        return Predictions(_matrix([score(x, width) for x in self._rows(batch)], width))

    def learn(self, batch: Batch) -> None:
        """See Learner."""
        learn = self._learn
        for x, y in zip(self._rows(batch), self._labels(batch), strict=True):
            learn(x, y)

    def interleave(self, events: Batch, examples: Batch, order: BoolArray) -> Predictions:
        """See Learner."""
        width = self._width(examples.n_classes)
        rows = self._rows(events)
        shared = events.X is examples.X and events.objects is examples.objects
        pairs = zip(rows if shared else self._rows(examples), self._labels(examples), strict=True)
        score, learn = self._score, self._learn
        scores: list[list[float]] = []
        if shared and _alternates(order, len(events)):
            for x, y in pairs:
                scores.append(score(x, width))
                learn(x, y)
            return Predictions(_matrix(scores, width))
        waiting = iter(rows)
        for learns in order.tolist():
            if learns:
                learn(*next(pairs))
            else:
                scores.append(score(next(waiting), width))
        return Predictions(_matrix(scores, width))

    def state(self) -> State:
        """See Learner."""
        return {
            "kind": "river",
            "model": river_state.encode(self.model),
            "refused": self.refused,
            "learned": self.learned,
        }

    def _width(self, n_classes: int) -> int:
        return {"binary": 2, "multiclass": n_classes, "regression": 1}[self._task]

    def _labels(self, batch: Batch) -> list[Any]:
        if batch.y is None:
            raise ValueError(f"{len(batch)} rows to learn, and no labels")
        labels: list[Any] = batch.y.tolist()
        return list(map(bool, labels)) if self._task == "binary" else labels

    def _learn(self, x: dict[str, Any], y: Any) -> None:
        try:
            self.model.learn_one(x, y)
        except Exception:  # one row that River cannot take must not end the stream
            self.refused += 1
            return
        self.learned += 1
        if self._changes is Changes.UNSEEN and len(self._known) < _KNOWN_ROWS:
            self._known.add(_shape(x))

    def _score(self, x: dict[str, Any], width: int) -> list[float]:
        model = self.model
        if self._changes and self._would_change(x):
            model = copy.deepcopy(model)
        try:
            answer = self._raw(model, x)
        except Exception:  # see the class
            self.non_finite += 1
            answer = None
        if self._task == "binary":
            return self._two(answer)
        return self._value(answer) if self._task == "regression" else self._many(answer, width)

    def _would_change(self, x: dict[str, Any]) -> bool:
        if not self.learned or self._changes is Changes.ALWAYS:
            return True
        return self._changes is Changes.UNSEEN and _shape(x) not in self._known

    def _two(self, answer: dict[bool, float] | None) -> list[float]:
        if not answer:
            return [0.5, 0.5]
        negative, positive = float(answer.get(False, 0.0)), float(answer.get(True, 0.0))
        total = negative + positive
        if 1.0 - _CLOSE < total < 1.0 + _CLOSE and positive >= 0.0 and negative >= 0.0:
            return [negative, positive]
        if math.isfinite(total) and total > 0.0 and positive >= 0.0 and negative >= 0.0:
            return [negative / total, positive / total]
        self.non_finite += not math.isfinite(total)
        return [0.5, 0.5]

    def _many(self, answer: dict[int, float] | None, width: int) -> list[float]:
        scores = [0.0] * width
        for code, p in (answer or {}).items():
            if code < width:
                scores[code] = float(p)
        total = sum(scores)
        if 1.0 - _CLOSE < total < 1.0 + _CLOSE and min(scores) >= 0.0:
            return scores
        if math.isfinite(total) and total > 0.0 and min(scores) >= 0.0:
            return [p / total for p in scores]
        self.non_finite += not math.isfinite(total)
        return self._uniform(answer, width)

    def _uniform(self, answer: dict[int, float] | None, width: int) -> list[float]:
        """Equal shares for the classes that the model has met."""
        met = [code for code in (answer or {}) if code < width]
        return [1.0 / len(met) if code in met else 0.0 for code in range(width)]

    def _value(self, answer: float | None) -> list[float]:
        value = 0.0 if answer is None else float(answer)
        if math.isfinite(value):
            return [value]
        self.non_finite += 1
        return [0.0]


def _predictor(last: Any) -> Callable[[Any, dict[str, Any]], Any]:
    """How this kind of model is asked: for probabilities, for a label, or for a value."""
    if isinstance(last, base.Regressor):
        return lambda model, x: model.predict_one(x)
    if type(last).predict_proba_one is base.Classifier.predict_proba_one:  # it knows labels only
        return _label_as_probabilities
    return _probabilities


def _probabilities(model: Any, x: dict[str, Any]) -> Any:
    try:
        return model.predict_proba_one(x)
    except NotImplementedError:  # a wrapper around one that knows labels only
        return _label_as_probabilities(model, x)


def _label_as_probabilities(model: Any, x: dict[str, Any]) -> Any:
    label = model.predict_one(x)
    return None if label is None else {label: 1.0}


def _last(model: Any) -> Any:
    """The step that predicts."""
    while isinstance(model, compose.Pipeline):
        model = model[-1]
    return model


def _unfit(last: Any, task: Task) -> str:
    """Why a last step does not fit the task; empty where it does."""
    if isinstance(last, (base.MultiLabelClassifier, base.MultiTargetRegressor)):
        return "predicts several targets at once; a model here has one"
    if task == "regression":
        return "" if isinstance(last, base.Regressor) else "is no regressor, and the task is regression"
    if not isinstance(last, base.Classifier):
        return f"is no classifier, and the task is {task}"
    if task == "multiclass" and not last._multiclass:
        return 'knows two classes; { "multiclass.OneVsRestClassifier" = { classifier = … } } takes it to more'
    return ""


def _shape(x: dict[str, Any]) -> tuple[Any, ...]:
    """What of a row could be unseen: its features, and its categories."""
    return tuple((name, value) if isinstance(value, str) else name for name, value in x.items())


def _alternates(order: BoolArray, n: int) -> bool:
    """Whether the order is test-then-train: predict one, learn it, and so on."""
    return len(order) == 2 * n and not order[::2].any() and bool(order[1::2].all())


def _matrix(scores: list[list[float]], width: int) -> FloatArray:
    return np.array(scores, dtype=np.float64).reshape(len(scores), width)
