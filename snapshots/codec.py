"""The state codec: plain data to bytes and back. Nothing in the bytes can name code, so reading a state
runs none.

A state is a MessagePack array of two: the text "rrs1" (whose digit is the format), and the state's map.
Two extension types carry what MessagePack lacks: 1 is a numpy array (see `arrays.py`), 2 an integer beyond
64 bits (big-endian two's complement). Equal states built in the same order give equal bytes.

Bytes are checked before anything is built of them: the lengths that all containers declare are added up
and must fit into the bytes at hand, so decoding never allocates more than a small multiple of its input.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from core.errors import CorruptSnapshot
from core.plain import Plain, State
from snapshots.arrays import pack_array, require_plain_array, unpack_array

MAX_BYTES = 512 * 1024 * 1024  # of one encoded state: what Redis takes as one value
MAX_DEPTH = 64  # containers inside containers
MAX_NODES = 32_000_000  # entries of all containers; a map's key and value count one each

_FORMAT = "1"
_MARK = "rrs" + _FORMAT
_HEAD = b"\x92\xa4" + _MARK.encode()
_ARRAY, _BIG_INT = 1, 2
_MAX_BIG_INT_BYTES = 4096

# What MessagePack holds as it is, but for containers and integers beyond 64 bits.
_LEAVES = frozenset({str, float, bool, type(None), bytes})
_DECODED = _LEAVES | {int, np.ndarray, list, dict}
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


class _NotPlain(Exception):
    """Why a value cannot be written, with the steps that lead to it (innermost first)."""

    def __init__(self, kind: type[Exception], problem: str) -> None:
        self.kind = kind
        self.problem = problem
        self.steps: list[str | int] = []


class _Preparer:
    """Checks that a value is plain, and replaces large integers. Values that need no change come back
    as they are; others are copied, never written to."""

    def __init__(self) -> None:
        self.nodes = 0

    def value(self, value: Plain, depth: int) -> Plain:
        kind = type(value)
        if kind in _LEAVES:
            return value
        if kind is int:
            return value if _INT_MIN <= value <= _INT_MAX else _pack_int(value)
        if kind is list or kind is dict:
            if depth >= MAX_DEPTH:
                raise _NotPlain(ValueError, f"nested deeper than {MAX_DEPTH} (or within itself)")
            return self.items(value, depth) if kind is list else self.entries(value, depth)
        if kind is np.ndarray:
            try:
                require_plain_array(value)
            except TypeError as error:
                raise _NotPlain(TypeError, str(error)) from None
            return value
        name = (
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        )
        hint = " (use a list)" if kind is tuple else " (use .item())" if isinstance(value, np.generic) else ""
        raise _NotPlain(TypeError, f"{name} is not plain data{hint}")

    def count(self, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise _NotPlain(ValueError, f"more than {MAX_NODES:,} values in one state")

    def items(self, value: list[Plain], depth: int) -> list[Plain]:
        self.count(len(value))
        kinds = set(map(type, value))
        if kinds <= _LEAVES or (kinds == {int} and min(value) >= _INT_MIN and max(value) <= _INT_MAX):
            return value
        copy: list[Plain] | None = None
        step: int = 0
        try:
            for step, item in enumerate(value):
                if type(item) in _LEAVES:
                    continue
                new = self.value(item, depth + 1)
                if new is not item:
                    if copy is None:
                        copy = list(value)
                    copy[step] = new
        except _NotPlain as error:
            error.steps.append(step)
            raise
        return value if copy is None else copy

    def entries(self, value: State, depth: int) -> State:
        self.count(2 * len(value))
        if value and set(map(type, value)) != {str}:
            bad = next(k for k in value if type(k) is not str)
            raise _NotPlain(TypeError, f"the key {bad!r:.80} is no string")
        if set(map(type, value.values())) <= _LEAVES:
            return value
        copy: State | None = None
        step = ""
        try:
            for step, item in value.items():
                if type(item) in _LEAVES:
                    continue
                new = self.value(item, depth + 1)
                if new is not item:
                    if copy is None:
                        copy = dict(value)
                    copy[step] = new
        except _NotPlain as error:
            error.steps.append(step)
            raise
        return value if copy is None else copy


def encode(state: State) -> bytes:
    """The state as bytes. Numpy arrays lie in them as they are in memory (little-endian), floats bit by
    bit (NaN, infinities and -0.0 included).

    Raises TypeError, naming the path, where a value is not plain data (a tuple, a numpy scalar, an array
    of objects, a key that is no string, ...); ValueError where the state is too deep, has too many
    values, is too large, or holds text that is not Unicode.
    """
    if type(state) is not dict:
        raise TypeError(f"a state is a dict, not {type(state).__qualname__}")
    preparer = _Preparer()
    try:
        prepared = preparer.value(state, 0)
    except _NotPlain as error:
        path = "".join(f"[{step!r:.80}]" for step in reversed(error.steps))
        raise error.kind(f"state{path}: {error.problem}") from None
    try:
        data = _ENCODER.encode([_MARK, prepared])
    except UnicodeEncodeError as error:
        raise ValueError(f"text that is not Unicode: {error.object[:80]!r}") from None
    if len(data) > MAX_BYTES:
        raise ValueError(f"a state of {len(data):,} bytes; at most {MAX_BYTES:,}")
    return data


def decode(data: bytes) -> State:
    """The state in these bytes; arrays are writable and own their memory.

    Raises CorruptSnapshot, and nothing else, for bytes that `encode` did not write.
    """
    if len(data) > MAX_BYTES:
        raise CorruptSnapshot(f"a state of {len(data):,} bytes; at most {MAX_BYTES:,}")
    if data[: len(_HEAD)] != _HEAD:
        if data[: len(_HEAD) - 1] == _HEAD[:-1] and len(data) >= len(_HEAD):
            other = chr(data[len(_HEAD) - 1])
            raise CorruptSnapshot(f"state format {other!r}; this riverrun reads format {_FORMAT!r}")
        raise CorruptSnapshot(f"not a state: {len(data)} bytes that begin with {bytes(data[: len(_HEAD)])!r}")
    declared = _declared_nodes(data)
    try:
        _, state = _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError, MemoryError) as error:
        raise CorruptSnapshot(f"not a state: {error}") from None
    if type(state) is not dict:
        raise CorruptSnapshot(f"not a state but a {type(state).__name__}")
    if _checked_nodes(state) + 2 != declared:
        raise CorruptSnapshot("not a state: a key is given twice")
    return state


def _pack_int(value: int) -> msgspec.msgpack.Ext:
    size = value.bit_length() // 8 + 1
    if size > _MAX_BIG_INT_BYTES:
        raise _NotPlain(ValueError, f"an integer of {size} bytes; at most {_MAX_BIG_INT_BYTES}")
    return msgspec.msgpack.Ext(_BIG_INT, value.to_bytes(size, "big", signed=True))


def _encode_array(value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(_ARRAY, pack_array(value))


def _decode_extension(code: int, data: memoryview) -> Plain:
    if code == _ARRAY:
        return unpack_array(data)
    if code == _BIG_INT and 0 < len(data) <= _MAX_BIG_INT_BYTES:
        return int.from_bytes(data, "big", signed=True)
    raise CorruptSnapshot(f"extension type {code} of {len(data)} bytes is none of a state's")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_array)
_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ext_hook=_decode_extension)


# A run of values whose size their first byte tells: skipped in one go. Possessive: never tried again.
_RUN = re.compile(
    b"(?:"
    + b"|".join(
        [
            rb"[\x00-\x7f\xc0\xc2\xc3\xe0-\xff]",  # small integers, nil, false, true
            rb"\xcb.{8}",  # float64
            *(b"[\\x%02x].{%d}" % (0xA0 + n, n) for n in range(4, 12)),  # short text, common lengths first
            rb"[\xcc\xd0].",
            rb"[\xcd\xd1]..",
            rb"[\xca\xce\xd2].{4}",
            rb"[\xcf\xd3].{8}",
            *(b"[\\x%02x].{%d}" % (0xA0 + n, n) for n in (*range(4), *range(12, 32))),
        ]
    )
    + b")*+",
    re.DOTALL,
)
# First byte: (bytes of length that follow it, entries or bytes per unit of length, extra bytes).
_CONTAINERS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}
_SIZED |= {0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)}  # extensions carry their type beside the length
_FIXED_EXTENSIONS = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}


def _declared_nodes(data: bytes) -> int:
    """How many entries the containers in this MessagePack declare together. Raises CorruptSnapshot where
    they are more than the bytes at hand could hold, or more than MAX_NODES."""
    end = len(data)
    limit = min(end, MAX_NODES + 2)
    at = nodes = 0
    while True:
        match = _RUN.match(data, at)
        at = match.end() if match else at
        if at >= end:
            break
        first = data[at]
        at += 1
        if first & 0xF0 == 0x90:
            nodes += first & 0x0F
        elif first & 0xF0 == 0x80:
            nodes += 2 * (first & 0x0F)
        elif first in _CONTAINERS:
            width, unit = _CONTAINERS[first]
            nodes += unit * int.from_bytes(data[at : at + width], "big")
            at += width
        elif first in _SIZED:
            width, extra = _SIZED[first]
            at += width + extra + int.from_bytes(data[at : at + width], "big")
        elif first in _FIXED_EXTENSIONS:
            at += _FIXED_EXTENSIONS[first]
        else:  # 0xc1, or a value that the end of the data cuts off
            raise CorruptSnapshot(f"not a state: malformed or cut off at byte {at - 1}")
        if nodes > limit:
            raise CorruptSnapshot(f"not a state: {nodes:,} values declared in {end:,} bytes")
    if at != end:
        raise CorruptSnapshot(f"not a state: cut off at byte {end}")
    return nodes


def _checked_nodes(state: State) -> int:
    """Counts the entries of all containers. Raises CorruptSnapshot for what `encode` never writes."""
    nodes = 0
    level: list[Plain] = [state]
    for _ in range(MAX_DEPTH):
        deeper: list[Plain] = []
        for container in level:
            if type(container) is dict:
                nodes += 2 * len(container)
                if container and set(map(type, container)) != {str}:
                    raise CorruptSnapshot("not a state: a key is no string")
                children = list(container.values())
            else:
                nodes += len(container)
                children = container
            kinds = set(map(type, children))
            if kinds <= _LEAVES:
                continue
            if not kinds <= _DECODED:
                raise CorruptSnapshot("not a state: a value that is not plain data")
            if list in kinds or dict in kinds:
                deeper.extend(child for child in children if type(child) is list or type(child) is dict)
        if not deeper:
            return nodes
        level = deeper
    raise CorruptSnapshot(f"not a state: nested deeper than {MAX_DEPTH}")
