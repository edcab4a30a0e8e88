"""Plain data -> River model. Only registered classes are made, and nothing of them but their state is run."""

from __future__ import annotations

import collections
import copy
import functools
import random
from typing import Any, Final

import numpy as np

from core.errors import CorruptSnapshot
from core.plain import Plain
from learners.river_parts import Ordered
from learners.river_registry import METHODS, resolve

MAX_NODES: Final = 20_000_000
_MAX_NESTING: Final = 64  # of immutable things in each other; River's own nest a handful deep
_ATOMS = frozenset({bool, int, float, str, bytes, type(None)})
_BIT_GENERATORS: Final = {"MT19937": np.random.MT19937, "PCG64": np.random.PCG64}


class Decoder:
    """Makes every node's shell first and fills the shells after, so sharing and cycles come back."""

    def __init__(self, nodes: list[Plain]) -> None:
        if len(nodes) > MAX_NODES:
            raise CorruptSnapshot(f"state of a River model: {len(nodes)} nodes, {MAX_NODES} allowed")
        self._nodes = nodes
        self._made: dict[int, Any] = {}
        self._filled: set[int] = set()
        self._nesting = 0

    def run(self, root: Plain) -> Any:
        model = self._value(root)
        numbers = range(len(self._nodes))
        for number in numbers:
            self._make(number)
        objects = []
        for number in numbers:
            if self._nodes[number][0] == "object":
                objects.append(number)
            else:
                self._fill(number)
        for number in reversed(objects):  # parts were met after what holds them
            self._fill_object(number)
        return model

    def _value(self, value: Plain) -> Any:
        if type(value) in _ATOMS:
            return value
        if type(value) is list and len(value) == 1 and type(value[0]) is int:
            return self._make(value[0])
        raise CorruptSnapshot("state of a River model: a value that is neither an atom nor a reference")

    def _values(self, values: Plain) -> list[Any]:
        return [self._value(value) for value in values]

    def _make(self, number: int) -> Any:
        if number in self._made:
            return self._made[number]
        if not 0 <= number < len(self._nodes) or self._nesting >= _MAX_NESTING:
            raise CorruptSnapshot(f"state of a River model: reference {number} leads nowhere")
        self._nesting += 1
        made = self._shell(number, self._nodes[number])
        self._nesting -= 1
        return self._made.setdefault(number, made)

    def _shell(self, number: int, node: Plain) -> Any:  # noqa: PLR0912  # one branch a tag
        match node:
            case ["list", _]:
                return []
            case ["dict", _, _]:
                return {}
            case ["ordered", _, _]:
                return collections.OrderedDict()
            case ["counter", _, _]:
                return collections.Counter()
            case ["default", factory, _, _]:
                mapping: collections.defaultdict[Any, Any] = collections.defaultdict()
                self._made[number] = mapping  # the factory may hold what holds the mapping
                made = self._value(factory)
                if made is not None and not callable(made):
                    raise CorruptSnapshot("state of a River model: a factory that cannot be called")
                mapping.default_factory = made
                return mapping
            case ["deque", maxlen, _]:
                return collections.deque(maxlen=maxlen)
            case ["set", _]:
                return set()
            case ["ordered_set", _]:
                return Ordered()
            case ["tuple", values]:
                return tuple(self._values(values))
            case ["frozenset", values]:
                return frozenset(self._values(values))
            case ["name", str(name)]:
                return resolve(name)
            case ["partial", func, args, names, values]:
                return functools.partial(
                    self._value(func),
                    *self._values(args),
                    **dict(zip(names, self._values(values), strict=True)),
                )
            case ["method", owner, str(name)] if name in METHODS:
                return getattr(self._value(owner), name)
            case ["array", np.ndarray() as array]:
                return array.copy()
            case ["columns", np.ndarray() as array]:
                return array.copy().T
            case ["scalar", np.ndarray() as array]:
                return array[0]
            case ["random", version, bytes(words), gauss]:
                generator = random.Random(0)
                generator.setstate((version, tuple(np.frombuffer(words, dtype="<u4").tolist()), gauss))
                return generator
            case ["generator", dict() as state]:
                bits = _BIT_GENERATORS[state["bit_generator"]]()
                bits.state = copy.deepcopy(state)
                return np.random.Generator(bits)
            case ["random_state", dict() as state]:
                legacy = np.random.RandomState()
                legacy.set_state(copy.deepcopy(state))
                return legacy
            case ["call", str(name), args]:
                return self._class(name)(*self._complete(args))
            case ["object", str(name), args, _, _, _, _, _]:
                cls = self._class(name)
                return cls.__new__(cls, *self._complete(args))
        raise CorruptSnapshot(f"state of a River model: a node of unknown shape ({str(node)[:60]})")

    def _class(self, name: str) -> type:
        cls = resolve(name)
        if not name.startswith(("river.", "learners.", "statistics.")) or not isinstance(cls, type):
            raise CorruptSnapshot(f"state of a River model: {name} is no River class")
        return cls

    def _complete(self, args: Plain) -> list[Any]:
        """Arguments of a call, which looks into them: their content is put in place first."""
        values = self._values(args)
        for arg in args:
            if type(arg) is list and self._nodes[arg[0]][0] != "object":
                self._fill(arg[0])
        return values

    def _fill(self, number: int) -> None:
        """Puts the content of a container in place, once."""
        if number in self._filled:
            return
        self._filled.add(number)
        made = self._made[number]
        match self._nodes[number]:
            case ["list" | "deque", *_, values]:
                made.extend(self._values(values))
            case ["set", values]:
                made.update(self._values(values))
            case ["ordered_set", values]:
                made.update(dict.fromkeys(self._values(values)))
            case ["dict" | "ordered" | "counter" | "default", *_, keys, values]:
                for key, value in zip(self._values(keys), self._values(values), strict=True):
                    dict.__setitem__(made, key, value) if type(made) is dict else made.__setitem__(key, value)

    def _fill_object(self, number: int) -> None:
        _, name, _, names, values, slots, slot_values, raw = self._nodes[number]
        made = self._made[number]
        restore = getattr(made, "__setstate__", None)
        attributes = dict(zip(names, self._values(values), strict=True))
        content = self._value(raw)
        if content is not None:
            if restore is None:
                raise CorruptSnapshot(f"state of a River model: {name} takes no such state")
            restore(content)
        elif restore is not None and attributes:
            restore(attributes)
        elif attributes:
            made.__dict__.update(attributes)
        for slot, value in zip(slots, self._values(slot_values), strict=True):
            object.__setattr__(made, slot, value)
