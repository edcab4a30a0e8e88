"""River model -> plain data, by walking the same state that copying an object uses."""

from __future__ import annotations

import collections
import copy
import copyreg
import functools
import random
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from core.errors import ConfigError
from core.plain import Plain
from learners.river_parts import Ordered
from learners.river_registry import METHODS, name_of

_ATOMS = frozenset({bool, int, float, str, bytes, type(None)})
_SORTABLE = frozenset({bool, int, float, str, bytes, type(None), tuple})
# What a pipeline works out again at its first use: not state.
_CACHES = {"_plan": None, "_inference_transformers": (), "_last_step_cached": None}
_PIPELINE = "river.compose.pipeline.Pipeline"


class Encoder:
    """Turns one object graph into a flat table of nodes: `[tag, payload...]`. A value in a payload is
    an atom, or a one-element list with the number of the node it stands for. Mutable things are one
    node each however often they are met, so sharing and cycles are kept; immutable ones are written
    wherever they occur, so that equal states give equal tables whatever Python shared behind them."""

    def __init__(self) -> None:
        self.nodes: list[Plain] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # keeps ids from being used again while the table grows
        self._todo: collections.deque[tuple[int, Any]] = collections.deque()

    def run(self, root: Any) -> Plain:
        """Encodes everything that `root` reaches; returns the reference to it."""
        reference = self._value(root)
        while self._todo:
            number, value = self._todo.popleft()
            self.nodes[number] = self._node(value)
        return reference

    def _value(self, value: Any) -> Plain:
        kind = type(value)
        if kind in _ATOMS:
            return value
        shared = kind is not tuple and kind is not frozenset and not isinstance(value, (type, np.generic))
        if shared:
            number = self._numbers.get(id(value))
            if number is not None:
                return [number]
            self._numbers[id(value)] = len(self.nodes)
            self._kept.append(value)
        self.nodes.append(None)
        self._todo.append((len(self.nodes) - 1, value))
        return [len(self.nodes) - 1]

    def _values(self, values: Iterable[Any]) -> list[Plain]:
        return [self._value(value) for value in values]

    def _node(self, value: Any) -> Plain:
        encode = _BY_TYPE.get(type(value))
        if encode is not None:
            return encode(self, value)
        name = name_of(value) if callable(value) else None
        if name is not None:
            return ["name", name]
        if isinstance(value, np.generic):
            return ["scalar", self._numeric(np.asarray(value).reshape(1))]
        return self._object(value)

    def _object(self, value: Any) -> Plain:
        name = name_of(type(value))
        if name is None:
            raise _unsavable(value)
        build, args, *rest = value.__reduce_ex__(2)
        state, items, pairs = (*rest, None, None, None)[:3]
        if build is type(value):  # VectorDict: made again by a call with its content
            return ["call", name, self._values(args)]
        if build is not copyreg.__newobj__ or args[0] is not type(value) or items or pairs:  # type: ignore[attr-defined]
            raise _unsavable(value)
        attributes, slots, raw = _split(state)
        if name == _PIPELINE:
            attributes = {k: v for k, v in attributes.items() if k != "_last_step_params"} | _CACHES
        if name.startswith("river.proba.") and attributes.get("seed") is None and "_rng" in attributes:
            # An unseeded distribution draws only when it is sampled, which no learner does; its
            # generator would make equal models differ, and is larger than the distribution.
            attributes = {**attributes, "_rng": None}
        return [
            "object",
            name,
            self._values(args[1:]),
            list(attributes),
            self._values(attributes.values()),
            list(slots),
            self._values(slots.values()),
            self._value(raw),
        ]

    def _array(self, value: np.ndarray[Any, Any]) -> Plain:
        # River updates matrices in place through BLAS, which works on columns: the layout is state.
        if value.flags.f_contiguous and not value.flags.c_contiguous:
            return ["columns", self._numeric(value.T)]
        return ["array", self._numeric(value)]

    def _numeric(self, array: np.ndarray[Any, Any]) -> Plain:
        if array.dtype.kind not in "biuf":
            raise ConfigError(f"a River model with an array of {array.dtype} cannot be saved")
        return array.copy()

    def _dict(self, tag: str, value: dict[Any, Any], *extra: Plain) -> Plain:
        for key in value:
            if type(key) not in _SORTABLE and _hash_of(key) is not object.__hash__:
                raise _unsavable(key)
        return [tag, *extra, self._values(value), self._values(value.values())]

    def _set(self, tag: str, value: Iterable[Any]) -> Plain:
        members = list(value)
        for member in members:
            if type(member) not in _SORTABLE:
                raise _unsavable(member)
        # A set's own order depends on the process; this one on the members alone.
        return [tag, self._values(sorted(members, key=lambda m: (type(m).__name__, repr(m))))]

    def _partial(self, value: functools.partial[Any]) -> Plain:
        if value.__dict__:
            raise _unsavable(value)
        names = list(value.keywords)
        return [
            "partial",
            self._value(value.func),
            self._values(value.args),
            names,
            self._values(value.keywords.values()),
        ]

    def _method(self, value: types.MethodType) -> Plain:
        if value.__name__ not in METHODS:
            raise _unsavable(value)
        return ["method", self._value(value.__self__), value.__name__]

    def _random(self, value: random.Random) -> Plain:
        version, words, gauss = value.getstate()
        return ["random", version, np.array(words, dtype="<u4").tobytes(), gauss]

    def _generator(self, value: np.random.Generator) -> Plain:
        return ["generator", copy.deepcopy(value.bit_generator.state)]

    def _random_state(self, value: np.random.RandomState) -> Plain:
        return ["random_state", copy.deepcopy(value.get_state(legacy=False))]


_BY_TYPE: dict[type, Callable[[Encoder, Any], Plain]] = {
    list: lambda e, v: ["list", e._values(v)],
    tuple: lambda e, v: ["tuple", e._values(v)],
    dict: lambda e, v: e._dict("dict", v),
    set: lambda e, v: e._set("set", v),
    frozenset: lambda e, v: e._set("frozenset", v),
    Ordered: lambda e, v: ["ordered_set", e._values(v)],
    collections.OrderedDict: lambda e, v: e._dict("ordered", v),
    collections.Counter: lambda e, v: e._dict("counter", v),
    collections.defaultdict: lambda e, v: e._dict("default", v, e._value(v.default_factory)),
    collections.deque: lambda e, v: ["deque", v.maxlen, e._values(v)],
    functools.partial: Encoder._partial,
    types.MethodType: Encoder._method,
    random.Random: Encoder._random,
    np.random.Generator: Encoder._generator,
    np.random.RandomState: Encoder._random_state,
    np.ndarray: Encoder._array,
}


def _hash_of(value: Any) -> Any:
    return type(value).__hash__


def _split(state: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """An object's copied state as attributes, slots, and whatever else its class makes of it."""
    if state is None:
        return {}, {}, None
    if isinstance(state, dict):
        return state, {}, None
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        return state[0] or {}, state[1], None
    return {}, {}, state


def _unsavable(value: Any) -> ConfigError:
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    module = getattr(value, "__module__", None) or type(value).__module__
    return ConfigError(f"a River model that holds {module}.{name} cannot be saved")
