"""Any River classifier or regressor behind the Learner port."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from river import base, compose

from core.batch import Batch, Predictions
from core.errors import ConfigError, CorruptSnapshot
from core.plain import BoolArray, State
from core.schema import Schema, Task
from learners import river_probe, river_state
from learners.river_answers import FAILED, Answers
from learners.river_probe import Changes
from learners.river_rows import Rows
from learners.river_steps import Builder

_KNOWN_ROWS: Final = 100_000  # shapes of rows remembered, for models that change at unseen ones


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
    return found + river_probe.problems(model, schema, task, Answers(task, _labels_only(last)).asker)


class RiverLearner:
    """Feeds River one row at a time; results equal River's own.

    A row that River cannot take (it raises) ends there, counted in `refused`, which is part of the
    state. A prediction that raises or is not finite becomes the answer of a model that knows nothing,
    and is counted in `non_finite`, which is not.
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
        # Looking into an object's attributes slows its methods down (CPython), so a twin is looked into.
        trial = Builder(seed).pipeline(settings["steps"], "steps")
        self._answers = Answers(task, _labels_only(_last(trial)))
        self._changes = river_probe.when_it_changes(trial, schema, self._answers.asker)
        self._known: set[tuple[Any, ...]] = set()
        self.model = model
        self.refused = 0
        self.learned = 0
        self._failed = 0
        if state is not None:
            if state["kind"] != "river":
                raise CorruptSnapshot(f"state of a {state['kind']} learner, not of a river one")
            self.model = river_state.decode(state["model"])
            self.refused = state["refused"]
            self.learned = state["learned"]

    @property
    def non_finite(self) -> int:
        """Predictions that raised or were not finite, since this object was made."""
        return self._answers.non_finite + self._failed

    def predict(self, batch: Batch) -> Predictions:
        """See Learner."""
        ask = self._asker()
        answers = [ask(x) for x in self._rows(batch)]
        return Predictions(self._answers.scores(answers, self._width(batch.n_classes)))

    def learn(self, batch: Batch) -> None:
        """See Learner."""
        learn = self._learn
        for x, y in zip(self._rows(batch), self._labels(batch), strict=True):
            learn(x, y)

    def interleave(self, events: Batch, examples: Batch, order: BoolArray) -> Predictions:
        """See Learner."""
        rows, labels = self._rows(events), self._labels(examples)
        shared = events.X is examples.X and events.objects is examples.objects
        if shared and self._plain and _alternates(order, len(rows)):
            answers = self._test_then_train(rows, labels)
        else:
            answers = self._in_order(rows, rows if shared else self._rows(examples), labels, order)
        return Predictions(self._answers.scores(answers, self._width(examples.n_classes)))

    def _test_then_train(self, rows: list[dict[str, Any]], labels: list[Any]) -> list[Any]:
        """The common case with nothing around River's two calls."""
        ask, learn = self._answers.asker(self.model), self.model.learn_one
        answers: list[Any] = []
        refused = 0
        for x, y in zip(rows, labels, strict=True):
            try:
                answers.append(ask(x))
            except Exception:  # see the class
                answers.append(FAILED)
                self._failed += 1
            try:
                learn(x, y)
            except Exception:  # see the class
                refused += 1
        self.refused += refused
        self.learned += len(rows) - refused
        return answers

    def _in_order(
        self, rows: list[dict[str, Any]], examples: list[dict[str, Any]], labels: list[Any], order: BoolArray
    ) -> list[Any]:
        ask, learn = self._asker(), self._learn
        waiting, pairs = iter(rows), zip(examples, labels, strict=True)
        answers: list[Any] = []
        for learns in order.tolist():
            if learns:
                learn(*next(pairs))
            else:
                answers.append(ask(next(waiting)))
        return answers

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

    @property
    def _plain(self) -> bool:
        """Whether predicting can be trusted to leave the model as it is, whatever the row."""
        return self._changes is Changes.NEVER or (self._changes is Changes.FRESH and self.learned > 0)

    def _learn(self, x: dict[str, Any], y: Any) -> None:
        try:
            self.model.learn_one(x, y)
        except Exception:  # one row that River cannot take must not end the stream
            self.refused += 1
            return
        self.learned += 1
        if self._changes is Changes.UNSEEN and len(self._known) < _KNOWN_ROWS:
            self._known.add(_shape(x))

    def _asker(self) -> Callable[[dict[str, Any]], Any]:
        """Asks the model, or a copy where asking would change it; raises nothing."""
        answers = self._answers

        def ask(x: dict[str, Any]) -> Any:
            model = copy.deepcopy(self.model) if self._would_change(x) else self.model
            try:
                return answers.asker(model)(x)
            except Exception:  # see the class
                self._failed += 1
                return FAILED

        return ask

    def _would_change(self, x: dict[str, Any]) -> bool:
        if self._changes is Changes.NEVER:
            return False
        if not self.learned or self._changes is Changes.ALWAYS:
            return True
        return self._changes is Changes.UNSEEN and _shape(x) not in self._known


def _labels_only(last: Any) -> bool:
    """Whether a classifier knows labels, but no probabilities."""
    if isinstance(last, base.Regressor):
        return False
    try:
        copy.deepcopy(last).predict_proba_one({})
    except NotImplementedError:
        return True
    except Exception:
        return type(last).predict_proba_one is base.Classifier.predict_proba_one
    return False


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
