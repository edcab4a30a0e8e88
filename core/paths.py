"""Typed decoding of JSON objects whose fields sit at configured paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec

from core.errors import ConfigError

Steps = tuple[str, ...]
NEEDED = msgspec.NODEFAULT


@dataclass(frozen=True, slots=True)
class Leaf:
    """The type of one field, and what stands for it where it is left out (NEEDED: it may not be)."""

    type: Any
    default: Any = NEEDED


@dataclass(slots=True)
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    leaf: Leaf | None = None


def build_struct(leaves: Mapping[Steps, Leaf]) -> tuple[type, dict[Steps, Callable[[Any], Any]]]:
    """A msgspec type that decodes objects with these fields, other fields ignored, and a getter for each
    field. Raises ConfigError where one path runs through another's field."""
    root = _Node()
    for steps, leaf in leaves.items():
        node = root
        for step in steps:
            if node.leaf is not None:
                raise ConfigError(f"path {'.'.join(steps)}: {step} lies inside another field")
            node = node.children.setdefault(step, _Node())
        if node.children or node.leaf is not None:
            raise ConfigError(f"path {'.'.join(steps)}: two fields share this place")
        node.leaf = leaf
    getters: dict[Steps, Callable[[Any], Any]] = {}
    return _struct(root, (), "", getters), getters


def _struct(node: _Node, at: Steps, dotted: str, getters: dict[Steps, Callable[[Any], Any]]) -> type:
    needed: list[Any] = []
    optional: list[Any] = []
    names: dict[str, str] = {}
    for i, (key, child) in enumerate(node.children.items()):
        attribute = f"f{i}"
        names[attribute] = key
        path = f"{dotted}.{attribute}" if dotted else attribute
        if child.leaf is not None:
            getters[(*at, key)] = attrgetter(path)
            row = (attribute, child.leaf.type, child.leaf.default)
            (needed if child.leaf.default is NEEDED else optional).append(row)
        else:
            inner = _struct(child, (*at, key), path, getters)
            if all(f.required is False for f in msgspec.structs.fields(inner)):
                # An object of optional fields may be left out as a whole.
                optional.append((attribute, inner, msgspec.field(default_factory=inner)))
            else:
                needed.append((attribute, inner))
    rows = [(row[0], row[1]) for row in needed] + optional
    # gc=False: structs of scalars hold no cycles, and a batch makes thousands of them.
    return msgspec.defstruct("Record", rows, rename=names, gc=False)
