"""Numpy arrays as bytes: one byte of dtype, one of layout and number of dimensions, each dimension as
8 bytes, then the elements. All little-endian, in row-major order unless the layout says otherwise."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import CorruptSnapshot

_CODES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")
_DTYPES = {code + 1: np.dtype(name) for code, name in enumerate(_CODES)}
_BY_KIND = {(dtype.kind, dtype.itemsize): code for code, dtype in _DTYPES.items()}
_COLUMN_MAJOR = 0x80  # in the byte of the number of dimensions
_MAX_DIMENSIONS = 32


def require_plain_array(array: npt.NDArray[Any]) -> None:
    """Raises TypeError where `pack_array` cannot keep the array."""
    if (array.dtype.kind, array.dtype.itemsize) not in _BY_KIND:
        raise TypeError(f"an array of {array.dtype} is not plain data (bool, integers, float32 or float64)")
    if array.ndim > _MAX_DIMENSIONS:
        raise TypeError(f"an array of {array.ndim} dimensions; at most {_MAX_DIMENSIONS}")


def pack_array(array: npt.NDArray[Any]) -> bytearray:
    """The array's bytes. Whether it is column-major is kept, since sums may depend on it; other strides
    and the byte order of its dtype are not."""
    code = _BY_KIND[array.dtype.kind, array.dtype.itemsize]
    column_major = array.flags.f_contiguous and not array.flags.c_contiguous
    header = struct.pack(
        f"<BB{array.ndim}Q", code, array.ndim | (_COLUMN_MAJOR if column_major else 0), *array.shape
    )
    packed = bytearray(len(header) + array.nbytes)
    packed[: len(header)] = header
    elements = np.frombuffer(packed, _DTYPES[code], array.size, len(header))
    elements.reshape(array.shape, order="F" if column_major else "C")[...] = array
    return packed


def unpack_array(data: memoryview) -> npt.NDArray[Any]:
    """The array in these bytes, writable and with memory of its own. Raises CorruptSnapshot."""
    if len(data) < 2 or data[0] not in _DTYPES:
        raise CorruptSnapshot(f"an array of unknown dtype in {len(data)} bytes")
    dtype = _DTYPES[data[0]]
    ndim = data[1] & ~_COLUMN_MAJOR
    start = 2 + 8 * ndim
    if ndim > _MAX_DIMENSIONS or start > len(data):
        raise CorruptSnapshot(f"an array of {ndim} dimensions in {len(data)} bytes")
    shape = struct.unpack_from(f"<{ndim}Q", data, 2)
    if math.prod(shape) * dtype.itemsize != len(data) - start or any(n >= 2**48 for n in shape):
        raise CorruptSnapshot(f"an array of shape {shape} and dtype {dtype} in {len(data)} bytes")
    elements = np.frombuffer(data, np.uint8 if dtype.kind == "b" else dtype, offset=start)
    owned = elements != 0 if dtype.kind == "b" else elements.copy()  # a bool is 0 or 1, whatever was written
    try:
        return owned.reshape(shape, order="F" if data[1] & _COLUMN_MAJOR else "C")
    except ValueError as error:  # numpy cannot index it, such as (0, 2**40, 2**40)
        raise CorruptSnapshot(f"an array of shape {shape}: {error}") from None
