"""What the configuration says, and what it gets told."""

from __future__ import annotations

from typing import Any

import pytest
from river import base, compose

from core.config import LearnerConfig
from core.errors import ConfigError
from core.schema import Schema, Task, parse_schema
from learners.registry import build, check
from learners.river_steps import Builder

NUMBERS = {"a": "float", "b": "float"}


def problems(steps: Any, task: Task = "binary", features: Any = None, **more: Any) -> str:
    schema = parse_schema(features or NUMBERS)
    return "\n".join(check(LearnerConfig(kind="river", steps=steps, **more), schema, task))


def built(steps: Any, seed: int = 5) -> Any:
    builder = Builder(seed)
    model = builder.pipeline(steps, "steps")
    assert builder.problems == []
    return model


def test_steps_make_a_pipeline_in_order() -> None:
    model = built(["preprocessing.StandardScaler", {"linear_model.LogisticRegression": {"l2": 0.5}}])
    assert isinstance(model, compose.Pipeline)
    assert [type(s).__name__ for s in model.steps.values()] == ["StandardScaler", "LogisticRegression"]
    assert model[-1].l2 == 0.5


def test_a_lone_step_is_the_model() -> None:
    assert type(built(["naive_bayes.GaussianNB"])).__name__ == "GaussianNB"


def test_parameters_may_be_estimators_written_the_same_way() -> None:
    model = built(
        [
            {
                "ensemble.ADWINBaggingClassifier": {
                    "model": {
                        "pipeline": [
                            "preprocessing.StandardScaler",
                            {"linear_model.LogisticRegression": {"optimizer": {"optim.Adam": {"lr": 0.1}}}},
                        ]
                    },
                    "n_models": 3,
                }
            }
        ]
    )
    inner = model.model[-1]
    assert type(inner.optimizer).__name__ == "Adam"
    assert inner.optimizer.learning_rate == 0.1
    assert len(model) == 3


def test_a_bare_name_is_an_estimator_too() -> None:
    model = built(
        [{"linear_model.LogisticRegression": {"optimizer": "optim.AdaGrad", "loss": "optim.losses.Hinge"}}]
    )
    assert type(model.optimizer).__name__ == "AdaGrad"
    assert type(model.loss).__name__ == "Hinge"


def test_lists_of_estimators() -> None:
    model = built(
        [
            {
                "ensemble.VotingClassifier": {
                    "models": ["naive_bayes.GaussianNB", {"tree.HoeffdingTreeClassifier": {}}]
                }
            }
        ]
    )
    assert [type(m).__name__ for m in model] == ["GaussianNB", "HoeffdingTreeClassifier"]


def test_the_seed_reaches_what_draws_random_numbers() -> None:
    steps: list[Any] = [{"ensemble.BaggingClassifier": {"model": "naive_bayes.GaussianNB"}}]
    assert built(steps).seed == 5
    steps[0]["ensemble.BaggingClassifier"]["seed"] = 9
    assert built(steps).seed == 9


@pytest.mark.parametrize("what", ["numeric", "category"])
def test_selecting_by_kind(what: str) -> None:
    row = {"a": 1.0, "n": 2, "f": True, "s": "x"}
    kept = built([{"select": what}, "naive_bayes.GaussianNB"])[0].transform_one(row)
    assert kept == ({"s": "x"} if what == "category" else {"a": 1.0, "n": 2, "f": True})


def test_selecting_by_name_keeps_the_order_and_skips_what_is_missing() -> None:
    for step in ({"select": ["s", "zz", "a"]}, {"compose.Select": {"keys": ["s", "zz", "a"]}}):
        kept = built([step, "naive_bayes.GaussianNB"])[0].transform_one({"a": 1.0, "b": 2.0, "s": "x"})
        assert list(kept.items()) == [("s", "x"), ("a", 1.0)]


def test_unions_are_put_side_by_side() -> None:
    model = built(
        [
            {"union": [[{"select": ["a"]}, "preprocessing.StandardScaler"], {"select": ["b"]}]},
            "naive_bayes.GaussianNB",
        ]
    )
    assert model[0].transform_one({"a": 1.0, "b": 2.0}) == {"a": 0.0, "b": 2.0}


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (None, "a list of steps"),
        ([], "a list of steps"),
        ([5], "a step is"),
        ([{"a": 1, "b": 2}], "a step is"),
        (["linear_model.LogisticRegresion"], "did you mean linear_model.LogisticRegression"),
        (["tree.LogisticRegression"], "did you mean"),
        (["linear_model._Secret"], "unknown River estimator"),
        (["linear_model.base.GLM.__init__"], "unknown River estimator"),
        (["datasets.Elec2"], "unknown River estimator"),
        (["os.System"], "unknown River estimator"),
        (["evaluate.Track"], "unknown River estimator"),
        (["linear_model.log_reg.Any"], "unknown River estimator"),
        (["preprocessing.scale.Counter"], "unknown River estimator"),
        (
            [{"linear_model.LogisticRegression": {"optimiser": 1}}],
            "no parameter 'optimiser'; did you mean optimizer?",
        ),
        ([{"linear_model.LogisticRegression": 5}], "parameters as a table"),
        ([{"linear_model.LogisticRegression": {"l1": 1, "l2": 1}}], "NotImplementedError"),
        ([{"linear_model.LogisticRegression": {"optimizer": "optim.Adm"}}], "did you mean optim.Adam"),
        (["ensemble.BaggingClassifier"], "needs the parameter 'model'"),
        (["preprocessing.StandardScaler"], "StandardScaler, is no classifier"),
        (
            ["linear_model.LogisticRegression", "naive_bayes.GaussianNB"],
            "LogisticRegression is no transformer",
        ),
        (["linear_model.LinearRegression"], "is no classifier, and the task is binary"),
        ([{"union": []}, "naive_bayes.GaussianNB"], "a list of branches"),
        ([{"union": ["naive_bayes.GaussianNB"]}, "naive_bayes.GaussianNB"], "is no transformer"),
        ([{"select": "numbers"}, "naive_bayes.GaussianNB"], 'select: "numeric"'),
        (["base.Classifier"], "unknown River estimator"),
        (["tree.HoeffdingTree"], "unknown River estimator"),
    ],
)
def test_every_problem_is_put_in_words(steps: Any, words: str) -> None:
    text = problems(steps)
    assert words in text
    assert text.startswith("learner.steps")
    with pytest.raises(ConfigError):
        build(LearnerConfig(kind="river", steps=steps), parse_schema(NUMBERS), "binary", 0)


def test_all_problems_come_together() -> None:
    text = problems(
        ["preprocessing.StandartScaler", {"tree.HoeffdingTreeClassifier": {"depth": 3}}], n_models=3
    )
    assert "learner.n_models" in text
    assert "learner.steps[0]" in text
    assert "learner.steps[1]" in text


@pytest.mark.parametrize(
    ("last", "task", "words"),
    [
        ("linear_model.LogisticRegression", "regression", "is no regressor"),
        ("linear_model.LogisticRegression", "multiclass", "knows two classes"),
        ("linear_model.LinearRegression", "multiclass", "is no classifier"),
        (
            {"multioutput.RegressorChain": {"model": "linear_model.LinearRegression"}},
            "regression",
            "unknown River",
        ),
    ],
)
def test_a_model_must_fit_the_task(last: Any, task: Task, words: str) -> None:
    assert words in problems([last], task)


def test_numbers_and_strings_through_one_scaler() -> None:
    text = problems(
        ["preprocessing.StandardScaler", "linear_model.LogisticRegression"],
        features={"a": "float", "s": "category"},
    )
    assert "StandardScaler cannot take a row of these features" in text
    assert 'select = "category"' in text


def test_strings_in_a_model_of_numbers() -> None:
    text = problems(["linear_model.LogisticRegression"], features={"s": "category"})
    assert "LogisticRegression cannot take" in text


def test_a_model_that_cannot_be_saved_is_known_beforehand() -> None:
    text = problems(
        [
            {
                "multiclass.OutputCodeClassifier": {
                    "classifier": "linear_model.LogisticRegression",
                    "code_size": 4,
                    "coding_method": "exact",
                }
            }
        ],
        "multiclass",
    )
    assert "cannot be saved" in text


def test_every_public_classifier_and_regressor_builds_or_says_why(numbers: Schema) -> None:
    """River's own test parameters aside, a plain name gives a model or a sentence, never a traceback."""
    import inspect

    from river import api

    tried = 0
    for package in (
        "linear_model",
        "tree",
        "forest",
        "ensemble",
        "naive_bayes",
        "neighbors",
        "rules",
        "facto",
    ):
        module = getattr(api, package)
        for name in module.__all__:
            cls = getattr(module, name, None)
            if not inspect.isclass(cls) or not issubclass(cls, (base.Classifier, base.Regressor)):
                continue
            task: Task = "regression" if issubclass(cls, base.Regressor) else "binary"
            found = check(LearnerConfig(kind="river", steps=[f"{package}.{name}"]), numbers, task)
            tried += 1
            if not found:
                build(LearnerConfig(kind="river", steps=[f"{package}.{name}"]), numbers, task, 0)
    assert tried > 40
