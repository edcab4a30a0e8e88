"""Configuration -> River estimator. Names are looked up in River's modelling packages, nowhere else."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from typing import Any, Final

from river import base, compose

from learners import river_parts

PACKAGES: Final = (
    "anomaly",
    "bandit",
    "compose",
    "drift",
    "dummy",
    "ensemble",
    "facto",
    "feature_extraction",
    "feature_selection",
    "forest",
    "imblearn",
    "linear_model",
    "metrics",
    "model_selection",
    "multiclass",
    "naive_bayes",
    "neighbors",
    "optim",
    "preprocessing",
    "proba",
    "rules",
    "sketch",
    "stats",
    "tree",
)
# What stands in River's place (see river_parts).
_INSTEAD: Final[dict[str, type]] = {
    "compose.Select": river_parts.Select,
    "preprocessing.StandardScaler": river_parts.StandardScaler,
}
_NAME = re.compile(r"[a-z]\w*(\.[a-z]\w*)*\.[A-Z]\w*")
_WORDS: Final = ("union", "select", "pipeline")


class Builder:
    """Builds estimators from steps, gathering every problem in `problems` instead of stopping at one."""

    def __init__(self, seed: int) -> None:
        self.problems: list[str] = []
        self._seed = seed

    def pipeline(self, steps: Any, where: str) -> Any:
        """The estimator of a list of steps (a lone step stands for itself); None where problems came up."""
        if not isinstance(steps, list) or not steps:
            self._problem(where, f"a list of steps, not {steps!r}")
            return None
        built = [self.step(step, f"{where}[{i}]") for i, step in enumerate(steps)]
        if any(part is None for part in built):
            return None
        for i, part in enumerate(built[:-1]):
            if not isinstance(part, (base.BaseTransformer, base.AnomalyFilter)):
                self._problem(
                    f"{where}[{i}]", f"{_label(part)} is no transformer; only the last step predicts"
                )
                return None
        return built[0] if len(built) == 1 else compose.Pipeline(*built)

    def step(self, step: Any, where: str) -> Any:
        """The estimator of one step: `"module.Class"`, `{ "module.Class" = { parameter = value } }`,
        `{ union = [branches] }`, `{ select = "numeric" | "category" | [names] }`,
        `{ pipeline = [steps] }`."""
        name: Any = step
        settings: Any = {}
        if isinstance(step, dict) and len(step) == 1:
            name, settings = next(iter(step.items()))
        if not isinstance(name, str):
            self._problem(where, f'a step is "module.Class" or {{ "module.Class" = {{…}} }}, not {step!r}')
            return None
        if name == "union":
            return self._union(settings, where)
        if name == "select":
            return self._select(settings, where)
        if name == "pipeline":
            return self.pipeline(settings, f"{where}.pipeline")
        return self._estimator(name, settings, where)

    def _union(self, branches: Any, where: str) -> Any:
        if not isinstance(branches, list) or not branches:
            self._problem(where, "union: a list of branches, each a step or a list of steps")
            return None
        built = [
            self.pipeline(b if isinstance(b, list) else [b], f"{where}.union[{i}]")
            for i, b in enumerate(branches)
        ]
        if any(part is None for part in built):
            return None
        for i, part in enumerate(built):
            last = part[-1] if isinstance(part, compose.Pipeline) else part
            if not isinstance(last, base.BaseTransformer):
                self._problem(f"{where}.union[{i}]", f"{_label(last)} is no transformer")
                return None
        return compose.TransformerUnion(*((f"branch{i}", part) for i, part in enumerate(built)))

    def _select(self, what: Any, where: str) -> Any:
        if what in ("numeric", "category"):
            return river_parts.SelectKind(what)
        if isinstance(what, list) and what and all(isinstance(name, str) for name in what):
            return river_parts.SelectNames(list(what))
        self._problem(where, f'select: "numeric", "category" or a list of feature names, not {what!r}')
        return None

    def _estimator(self, name: str, settings: Any, where: str) -> Any:
        cls = self._class(name, where)
        if cls is None:
            return None
        if not isinstance(settings, dict):
            self._problem(where, f"{name}: parameters as a table, not {settings!r}")
            return None
        parameters = inspect.signature(cls).parameters
        known = [p for p in parameters if p != "self"]
        before = len(self.problems)
        for key in settings:
            if key not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                self._problem(where, f"{name} has no parameter {key!r}{_close(key, known)}")
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        for key, parameter in parameters.items():
            needed = parameter.default is parameter.empty and parameter.kind not in variadic and key != "seed"
            if needed and key not in settings:
                self._problem(where, f"{name} needs the parameter {key!r}")
        values = {k: self._value(v, f"{where}.{k}") for k, v in settings.items()}
        if len(self.problems) > before:
            return None
        if "seed" in parameters and "seed" not in values:
            values["seed"] = self._seed  # an unseeded model could not be rebuilt from the log
        args: list[Any] = []
        for key, parameter in parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL and key in values:
                given = values.pop(key)
                args = given if isinstance(given, list) else [given]
        try:
            return cls(*args, **values)
        except Exception as error:
            self._problem(where, f"{name}: {type(error).__name__}: {error}")
            return None

    def _class(self, name: str, where: str) -> type | None:
        if name in _INSTEAD:
            return _INSTEAD[name]
        package, _, rest = name.partition(".")
        if (
            "_" in (part[:1] for part in name.split("."))
            or not _NAME.fullmatch(name)
            or package not in PACKAGES
        ):
            self._problem(where, f"unknown River estimator {name!r}{_close(name, _public())}")
            return None
        module, _, attribute = f"river.{package}.{rest}".rpartition(".")
        try:
            cls = getattr(importlib.import_module(module), attribute, None)
        except ImportError:
            cls = None
        if not (isinstance(cls, type) and cls.__module__.startswith("river.") and issubclass(cls, base.Base)):
            self._problem(where, f"unknown River estimator {name!r}{_close(name, _public())}")
            return None
        if inspect.isabstract(cls):
            self._problem(where, f"{name} is an abstract class of River, not an estimator")
            return None
        return cls

    def _value(self, value: Any, where: str) -> Any:
        """A parameter's value, estimators inside it built."""
        if isinstance(value, str):
            return self._estimator(value, {}, where) if _NAME.fullmatch(value) else value
        if isinstance(value, list):
            return [self._value(v, f"{where}[{i}]") for i, v in enumerate(value)]
        if isinstance(value, dict):
            if len(value) == 1:
                key = next(iter(value))
                if key in _WORDS or _NAME.fullmatch(key):
                    return self.step(value, where)
            return {k: self._value(v, f"{where}.{k}") for k, v in value.items()}
        return value

    def _problem(self, where: str, text: str) -> None:
        self.problems.append(f"learner.{where}: {text}")


def _label(estimator: Any) -> str:
    return type(estimator).__name__


def _close(name: str, names: list[str]) -> str:
    """The likeliest meant name, as a question."""
    found = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if not found:  # the right class in the wrong package
        found = [n for n in names if n.rpartition(".")[2].lower() == name.rpartition(".")[2].lower()]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _public() -> list[str]:
    names = []
    for package in PACKAGES:
        module = importlib.import_module(f"river.{package}")
        names += [f"{package}.{n}" for n in getattr(module, "__all__", ()) if n[:1].isupper()]
    return names
