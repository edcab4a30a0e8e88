"""Columns of JSON values as JSON records, fields at configured paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from core.errors import ConfigError
from core.plain import IntArray

_encode = msgspec.json.Encoder().encode
Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WireColumns:
    """Records of one topic in order, as columns."""

    values: list[bytes]
    keys: list[bytes | None]
    timestamps_ms: IntArray

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column goes in the record. `omit`: left out of the record where it is None, else null."""

    steps: Steps
    omit: bool = False


class Shape:
    """Writes records with the same fields over and over. Compiled once into struct types, which msgspec
    writes in half the time that dicts take."""

    def __init__(self, places: Sequence[Place]) -> None:
        """Raises ConfigError where two columns go to one place, or one inside another."""
        self._omit = [i for i, place in enumerate(places) if place.omit]
        tree: dict[str, Any] = {}
        for index, place in enumerate(places):
            node = tree
            for step in place.steps[:-1]:
                node = node.setdefault(step, {})
                if not isinstance(node, dict):
                    raise _clash(place)
            if place.steps[-1] in node:
                raise _clash(place)
            node[place.steps[-1]] = index
        self._root = _Node(tree)

    def encode(self, columns: Sequence[list[Any]]) -> list[bytes]:
        """One record a row, as bytes; columns in the order of the places."""
        filled = list(columns)
        for i in self._omit:
            filled[i] = [msgspec.UNSET if v is None else v for v in filled[i]]
        return list(map(_encode, self._root.rows(filled)))


def _clash(place: Place) -> ConfigError:
    return ConfigError(
        f'two fields of a record have one path, or one lies in another: "{".".join(place.steps)}"'
    )


class _Node:
    """One object of the record: a struct type with a field for each column or inner object."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self._parts = [_Node(part) if isinstance(part, dict) else part for part in tree.values()]
        self._names = list(tree)
        fields = [(f"f{i}", Any) for i in range(len(tree))]
        try:
            rename = {f"f{i}": name for i, name in enumerate(tree)}
            self._make: Any = msgspec.defstruct("Record", fields, rename=rename, gc=False)
        except ValueError:  # names with quotes or control characters
            self._make = self._dict

    def _dict(self, *values: Any) -> dict[str, Any]:
        return {n: v for n, v in zip(self._names, values, strict=True) if v is not msgspec.UNSET}

    def rows(self, columns: Sequence[list[Any]]) -> list[Any]:
        parts = [p.rows(columns) if isinstance(p, _Node) else columns[p] for p in self._parts]
        return list(map(self._make, *parts))
