"""The closed, typed schema of a model's features."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from core.errors import ConfigError
from core.plain import State

Kind = Literal["float", "int", "bool", "category", "any"]
Task = Literal["binary", "multiclass", "regression"]
KINDS: tuple[str, ...] = get_args(Kind)

OPEN = "*"  # the one column of an open feature map


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature. It sits in the features object under its name, or at `path` (dots between steps)
    where one is given. An optional feature may be null or left out; then it is missing (NaN or None)."""

    name: str
    kind: Kind
    optional: bool = False
    path: str = ""

    @property
    def steps(self) -> tuple[str, ...]:
        """The keys to follow inside the features object."""
        return tuple(self.path.split(".")) if self.path else (self.name,)

    @property
    def spec(self) -> str:
        return self.kind + ("?" if self.optional else "")


@dataclass(frozen=True, slots=True)
class Schema:
    """Features in column order: numeric ones make `Batch.X`, then categories and `any` ones make
    `Batch.objects`. An open schema has one `any` column, OPEN, that holds each row's whole map."""

    features: tuple[Feature, ...]
    open: bool = False

    @property
    def numeric(self) -> tuple[Feature, ...]:
        return tuple(f for f in self.features if f.kind in ("float", "int", "bool"))

    @property
    def categories(self) -> tuple[Feature, ...]:
        return tuple(f for f in self.features if f.kind == "category")

    @property
    def anys(self) -> tuple[Feature, ...]:
        return tuple(f for f in self.features if f.kind == "any")

    def digest(self) -> str:
        """SHA-256 over names, kinds and order: equal digests read records alike."""
        text = "\n".join(f"{f.name}\t{f.spec}\t{f.path}" for f in self.features) + f"\n{self.open}"
        return hashlib.sha256(text.encode()).hexdigest()

    def state(self) -> State:
        """The schema as plain data."""
        return {
            "features": [[f.name, f.kind, f.optional, f.path] for f in self.features],
            "open": self.open,
        }

    @classmethod
    def from_state(cls, state: State) -> Schema:
        return cls(tuple(Feature(*row) for row in state["features"]), state["open"])


_SPEC = re.compile(rf"({'|'.join(KINDS)})(\??)(?:\s+at\s+(\S+))?")


def parse_schema(features: Mapping[str, str] | str) -> Schema:
    """A schema from configuration: `"any"` for an open map, or feature names with specs: a kind, then
    `?` where the feature may be missing, then ` at some.path` where it sits elsewhere.

    Raises ConfigError naming every feature that is wrong.
    """
    if isinstance(features, str):
        if features != "any":
            raise ConfigError(f'features: a table of features or "any", not {features!r}')
        return Schema((Feature(OPEN, "any"),), open=True)
    problems: list[str] = []
    parsed: list[Feature] = []
    for name, spec in features.items():
        match = _SPEC.fullmatch(spec)
        if match is None:
            problems.append(
                f"features.{name}: one of {', '.join(KINDS)} (`?` behind it where it may be missing, "
                f'` at path` where it sits elsewhere), not "{spec}"'
            )
            continue
        kind, mark, path = match.groups()
        parsed.append(Feature(name, kind, bool(mark), path or ""))  # type: ignore[arg-type]  # matched KINDS
    if not features:
        problems.append("features: at least one feature")
    if problems:
        raise ConfigError(problems)
    rank = {"float": 0, "int": 0, "bool": 0, "category": 1, "any": 2}
    return Schema(tuple(sorted(parsed, key=lambda f: rank[f.kind])))
