"""Detectors by name, as configuration writes them: "adwin", or {"adwin": {"delta": 0.01}}."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import ConfigError
from core.plain import State
from drift.adwin import Adwin
from drift.detector import Detector
from drift.page_hinkley import PageHinkley

Spec = str | Mapping[str, Mapping[str, float | int | bool]]


@dataclass(frozen=True, slots=True)
class _Setting:
    """A number that a detector takes. `low` and `high` are allowed unless named open."""

    whole: bool
    low: float
    high: float
    open_low: bool = False
    open_high: bool = False

    def accepts(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.whole and not isinstance(value, int):
            return False
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        number = "a whole number" if self.whole else "a number"
        low = "above" if self.open_low else "from"
        high = "below" if self.open_high else "to"
        return f"{number} {low} {self.low:g} {high} {self.high:g}"


@dataclass(frozen=True, slots=True)
class _Kind:
    make: Callable[..., Detector]
    settings: Mapping[str, _Setting]


_KINDS: Mapping[str, _Kind] = {
    Adwin.name: _Kind(
        Adwin,
        {
            "delta": _Setting(False, 0, 1, open_low=True, open_high=True),
            "clock": _Setting(True, 1, 1_000_000),
            "max_buckets": _Setting(True, 2, 100),
            "min_window_length": _Setting(True, 1, 1_000_000),
            "grace_period": _Setting(True, 1, 1_000_000_000),
        },
    ),
    PageHinkley.name: _Kind(
        PageHinkley,
        {
            "min_instances": _Setting(True, 1, 1_000_000_000),
            "delta": _Setting(False, 0, 1e30),
            "threshold": _Setting(False, 0, 1e30, open_low=True),
            "alpha": _Setting(False, 0, 1, open_low=True),
        },
    ),
}
NAMES: tuple[str, ...] = tuple(_KINDS)


def _parse(spec: object) -> tuple[str, Mapping[str, Any], list[str]]:
    """Name, settings and problems."""
    settings: Any = {}
    if isinstance(spec, str):
        name = spec
    elif isinstance(spec, Mapping) and len(spec) == 1:
        name, settings = next(iter(spec.items()))
    else:
        return "", {}, [f'a detector is a name, or one name with settings ({{"adwin": {{…}}}}), not {spec!r}']
    kind = _KINDS.get(name)
    if kind is None:
        return name, {}, [f"no detector {name!r}; there are {', '.join(NAMES)}"]
    if not isinstance(settings, Mapping):
        return name, {}, [f"{name}: settings are a table, not {settings!r}"]
    problems = []
    for key, value in settings.items():
        setting = kind.settings.get(key)
        if setting is None:
            problems.append(f"{name}.{key}: no such setting; there are {', '.join(kind.settings)}")
        elif not setting.accepts(value):
            problems.append(f"{name}.{key}: {setting}, not {value!r}")
    return name, settings, problems


def check(spec: Spec) -> list[str]:
    """What is wrong with a detector's configuration, in words; empty where nothing is."""
    return _parse(spec)[2]


def build(spec: Spec, state: State | None = None) -> Detector:
    """The detector of a specification, going on from `state` (of a detector of the same specification).
    Raises ConfigError naming every problem."""
    name, settings, problems = _parse(spec)
    if problems:
        raise ConfigError(problems)
    return _KINDS[name].make(**settings, state=state)
