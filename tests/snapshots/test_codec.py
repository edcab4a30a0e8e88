"""The state codec: what goes in comes out, bit by bit; what is not plain is refused by name; and no bytes,
however hostile, do anything but raise CorruptSnapshot."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core.errors import CorruptSnapshot
from core.plain import State
from snapshots import codec
from snapshots.codec import MAX_DEPTH, decode, encode

DTYPES = ["?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"]
HEAD = b"\x92\xa4rrs1"

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.text()
    | st.binary(max_size=300)
    | hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
plain = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5)
)
states = st.dictionaries(st.text(max_size=8), plain, max_size=8)


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, types included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(states)
@example({"": {"x" * 31: "y" * 32, "z" * 255: "w" * 256}, "b": [b"", b"\xff" * 255, b"\x00" * 70_000]})
@example({"i": [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 0, -1, -32, -33, 127, 128]})
@example({"f": [math.nan, math.inf, -math.inf, -0.0, 5e-324], "deep": [[[[{"a": [[]]}]]]], "e": {}})
def test_every_state_comes_back_and_stays_unchanged(state: State) -> None:
    data = encode(state)
    back = decode(data)
    assert same(back, state)
    assert encode(back) == data
    assert encode(state) == data


def test_generator_state_goes_on_identically() -> None:
    rng = np.random.default_rng(7)
    rng.random(5)
    state = decode(encode({"rng": rng.bit_generator.state}))["rng"]
    again = np.random.default_rng()
    again.bit_generator.state = state
    assert rng.random(100).tolist() == again.random(100).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_come_back_writable_with_memory_of_their_own(dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    data = encode({"a": array})
    back = decode(data)["a"]
    assert back.dtype == array.dtype
    assert back.flags.writeable
    assert back.flags.aligned
    back[...] = 0
    assert decode(data)["a"].tolist() == array.tolist()


def test_array_layouts() -> None:
    array = np.arange(12.0).reshape(3, 4)
    state = {
        "column_major": np.asfortranarray(array),
        "strided": array[::2, ::3],
        "big_endian": array.astype(">f8"),
        "scalar": np.array(1.5),
        "empty": np.zeros((0, 5)),
    }
    back = decode(encode(state))
    for name, value in state.items():
        assert back[name].tolist() == value.tolist(), name
        assert back[name].shape == value.shape
    assert back["column_major"].flags.f_contiguous
    assert not back["column_major"].flags.c_contiguous
    assert back["strided"].flags.c_contiguous


class Text(str):
    pass


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"a": {"b": [1, (2, 3)]}}, "state['a']['b'][1]: tuple"),
        ({"a": np.array([None])}, "state['a']: an array of object"),
        ({"a": np.array(["x"])}, "state['a']: an array of"),
        ({"a": np.zeros(2, np.float16)}, "float16"),
        ({"a": np.zeros(2, np.complex128)}, "complex128"),
        ({"a": np.zeros(2, "M8[ms]")}, "datetime64"),
        ({"a": np.zeros(2, [("x", "f8")])}, "array"),
        ({"a": np.ma.masked_array([1.0])}, "MaskedArray"),
        ({"a": [np.float64(1)]}, "state['a'][0]: numpy.float64"),
        ({"a": Text("x")}, "Text"),
        ({"a": {1, 2}}, "set"),
        ({"a": {1: 2}}, "the key 1"),
        ({"a": {Text("x"): 2}}, "the key 'x'"),
        ({"a": 1j}, "complex"),
        ({"a": bytearray(b"x")}, "bytearray"),
        ({"a": object}, "type"),
    ],
)
def test_what_is_not_plain_is_refused_by_path(state: State, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        encode(state)
    assert words in str(caught.value)


def test_limits_of_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: list[Any] = []
    for _ in range(MAX_DEPTH - 2):
        deep = [deep]
    assert same(decode(encode({"a": deep}))["a"], deep)
    with pytest.raises(ValueError, match="deeper"):
        encode({"a": [deep]})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="deeper"):
        encode({"a": loop})
    with pytest.raises(ValueError, match="integer"):
        encode({"a": 1 << 40_000})
    with pytest.raises(ValueError, match="Unicode"):
        encode({"a": "\ud800"})
    with pytest.raises(TypeError):
        encode([1])  # type: ignore[arg-type]
    monkeypatch.setattr(codec, "MAX_NODES", 10)
    encode({"a": [1] * 8})
    with pytest.raises(ValueError, match="more than"):
        encode({"a": [1] * 9})
    monkeypatch.setattr(codec, "MAX_BYTES", 20)
    with pytest.raises(ValueError, match="at most"):
        encode({"a": "x" * 20})


def test_bytes_do_not_depend_on_hash_seeds() -> None:
    program = (
        "from snapshots.codec import encode\n"
        "print(encode({'b': 1, 'a': [2**70, 'x'], 'c': {'z': 1.5, 'y': None}}).hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


SAMPLE = encode(
    {
        "x": np.arange(6.0).reshape(2, 3),
        "ids": ["a", "b" * 40, None],
        "n": {"big": 2**100, "f": 1.5, "t": True, "raw": b"\x00\x01"},
        "rows": [[1, {"k": [300, 70_000, -5]}], []],
    }
)


def decode_or_refuse(data: bytes) -> None:
    """Decodes; anything but CorruptSnapshot fails, and so does memory out of proportion."""
    tracemalloc.start()
    try:
        decode(data)
    except CorruptSnapshot:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 100_000 + 200 * len(data)


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    decode_or_refuse(data)
    decode_or_refuse(HEAD + data)


@settings(deadline=None, max_examples=400)
@given(st.integers(0, len(SAMPLE) - 1), st.binary(min_size=1, max_size=6))
def test_overwritten_bytes(at: int, patch: bytes) -> None:
    decode_or_refuse(SAMPLE[:at] + patch + SAMPLE[at + len(patch) :])


def test_every_truncation_is_refused() -> None:
    for end in range(len(SAMPLE)):
        with pytest.raises(CorruptSnapshot):
            decode(SAMPLE[:end])
    with pytest.raises(CorruptSnapshot):
        decode(SAMPLE + b"\x00")


def test_every_single_bit_flip_is_survived() -> None:
    for at in range(len(SAMPLE)):
        for bit in range(8):
            flipped = bytearray(SAMPLE)
            flipped[at] ^= 1 << bit
            decode_or_refuse(bytes(flipped))


def ext(code: int, data: bytes) -> bytes:
    return b"\xc9" + struct.pack(">Ib", len(data), code) + data


def array_bytes(code: int, dims: list[int], data: bytes, flags: int = 0) -> bytes:
    return ext(1, struct.pack(f"<BB{len(dims)}Q", code, len(dims) | flags, *dims) + data)


HOSTILE = {
    "empty": b"",
    "list declaring 2^32": b"\x81\xa1a\xdd\xff\xff\xff\xff",
    "map declaring 2^32": b"\xdf\xff\xff\xff\xff",
    "text declaring 2^32": b"\x81\xa1a\xdb\xff\xff\xff\xff",
    "bytes declaring 2^32": b"\x81\xa1a\xc6\xff\xff\xff\xff",
    "lists that each declare all the rest": b"\x81\xa1a" + b"\xdd\x00\x0f\xff\x00" * 60 + b"\xc0" * 2**20,
    "deep 10,000": b"\x81\xa1a" + b"\x91" * 10_000 + b"\xc0",
    "deep 65": b"\x81\xa1a" + b"\x91" * 65 + b"\xc0",
    "timestamp": b"\x81\xa1a\xd6\xff\x00\x00\x00\x00",
    "bad timestamp": b"\x81\xa1a\xd7\xff" + b"\xff" * 8,
    "unknown extension": b"\x81\xa1a" + ext(3, b"abc"),
    "negative extension": b"\x81\xa1a" + ext(-5, b"abc"),
    "empty big integer": b"\x81\xa1a" + ext(2, b""),
    "huge big integer": b"\x81\xa1a" + ext(2, b"\x01" * 5_000),
    "key no text": b"\x81\x01\x02",
    "key a list": b"\x81\x91\x01\x02",
    "key an array": b"\x81" + array_bytes(11, [1], b"\0" * 8) + b"\x02",
    "key twice": b"\x82\xa1a\x01\xa1a\x02",
    "not a map": b"\x91\x01",
    "bad utf-8": b"\x81\xa1a\xa2\xff\xfe",
    "surrogate": b"\x81\xa1a\xa3\xed\xa0\x80",
    "opcode c1": b"\x81\xa1a\xc1",
    "array: dtype 0": b"\x81\xa1a" + array_bytes(0, [1], b"\0" * 8),
    "array: dtype 99": b"\x81\xa1a" + array_bytes(99, [1], b"\0" * 8),
    "array: 2^40 elements": b"\x81\xa1a" + array_bytes(11, [2**40], b"\0" * 8),
    "array: overflowing shape": b"\x81\xa1a" + array_bytes(11, [2**63, 2], b""),
    "array: empty but unbounded": b"\x81\xa1a" + array_bytes(11, [0, 2**60], b""),
    "array: empty but overflowing": b"\x81\xa1a" + array_bytes(11, [0, 2**47, 2**47], b""),
    "array: short": b"\x81\xa1a" + array_bytes(11, [2], b"\0" * 15),
    "array: long": b"\x81\xa1a" + array_bytes(11, [2], b"\0" * 17),
    "array: 100 dimensions": b"\x81\xa1a" + array_bytes(11, [1] * 100, b"\0" * 8),
    "array: no header": b"\x81\xa1a" + ext(1, b"\x0b"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused(name: str) -> None:
    decode_or_refuse(HEAD + HOSTILE[name])
    with pytest.raises(CorruptSnapshot):
        decode(HEAD + HOSTILE[name])


def test_a_bool_is_0_or_1_whatever_was_written() -> None:
    back = decode(HEAD + b"\x81\xa1a" + array_bytes(1, [3], b"\x00\x01\x07"))["a"]
    assert back.view(np.uint8).tolist() == [0, 1, 1]


def test_other_formats_are_named() -> None:
    with pytest.raises(CorruptSnapshot, match="format '9'"):
        decode(b"\x92\xa4rrs9" + SAMPLE[6:])
    with pytest.raises(CorruptSnapshot, match="not a state"):
        decode(b"\x80\x04\x95 a pickle")


def test_the_cap_on_size_and_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_NODES", 5)
    with pytest.raises(CorruptSnapshot, match="declared"):
        decode(SAMPLE)
    monkeypatch.setattr(codec, "MAX_BYTES", 100)
    with pytest.raises(CorruptSnapshot, match="at most"):
        decode(SAMPLE)


def test_any_messagepack_reader_can_read_it() -> None:
    mark, state = msgspec.msgpack.decode(encode({"a": [1, "x", None, {"b": 2.5}]}))
    assert mark == "rrs1"
    assert state == {"a": [1, "x", None, {"b": 2.5}]}
