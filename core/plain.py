"""Plain data: what states are made of, and the array types that the packages share."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
ObjectArray: TypeAlias = npt.NDArray[np.object_]

# None, bool, int, float, str, bytes, numpy arrays of bool, integers or floats, and lists and dicts
# (string keys) of these. No objects: a State can be written down without running any code.
Plain: TypeAlias = Any
State: TypeAlias = dict[str, Plain]


def objects(values: list[Any]) -> ObjectArray:
    """A 1-d object array of `values`, whatever they are (numpy would unpack nested lists)."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
