"""Category values -> slots of a weight table: one slot a value, in the order of first being learned."""

from __future__ import annotations

import zlib
from operator import itemgetter
from typing import Final

import numpy as np

from core.plain import IntArray, ObjectArray, State

OVERFLOW: Final = 1_024  # slots that all values beyond the cap share, by a hash of feature and value
_UNKNOWN: Final = -2
_MISSING: Final = -1


class Vocabulary:
    """Slots [0, OVERFLOW) are shared; values get the next free slot from OVERFLOW on, `cap` of them.

    Past the cap, a value's slot is CRC-32 of feature and value: stable across processes, so memory stays
    bounded whatever comes. `overflowed` counts the values learned so.
    """

    def __init__(self, features: int, cap: int, state: State | None = None) -> None:
        self._cap = cap
        self._maps = [_Slots({None: _MISSING}) for _ in range(features)]
        self._size = 0
        self.overflowed = 0
        if state is not None:
            for feature, value in zip(state["features"].tolist(), state["values"], strict=True):
                self._maps[feature][value] = OVERFLOW + self._size
                self._size += 1
            self.overflowed = state["overflowed"]

    @property
    def slots(self) -> int:
        """How many slots a weight table needs."""
        return OVERFLOW + self._size if self._maps else 0

    @property
    def full(self) -> bool:
        return self._size >= self._cap

    def known(self, objects: ObjectArray) -> IntArray:
        """Slots [n, features] of values to predict from; -1: missing or never learned."""
        if self._size < self._cap:
            return self._codes(objects, _MISSING)
        codes = self._codes(objects, _UNKNOWN)
        for i, j in np.argwhere(codes == _UNKNOWN).tolist():
            codes[i, j] = _hashed(j, objects[i, j])
        return codes

    def learned(self, objects: ObjectArray) -> IntArray:
        """Slots [n, features] of values about to be learned, new ones added row by row."""
        codes = self._codes(objects, _UNKNOWN)
        if codes.size == 0 or codes.min() > _UNKNOWN:
            return codes
        for i, j in np.argwhere(codes == _UNKNOWN).tolist():
            value = objects[i, j]
            slot = self._maps[j].get(value)
            if slot is None and not self.full:
                slot = self._maps[j][value] = OVERFLOW + self._size
                self._size += 1
            elif slot is None:
                slot = _hashed(j, value)
                self.overflowed += 1
            codes[i, j] = slot
        return codes

    def state(self) -> State:
        """The values in the order of their slots, with their features."""
        pairs = sorted(
            (slot, feature, value)
            for feature, known in enumerate(self._maps)
            for value, slot in known.items()
            if value is not None
        )
        return {
            "features": np.array([feature for _, feature, _ in pairs], dtype=np.int64),
            "values": [value for _, _, value in pairs],
            "overflowed": self.overflowed,
        }

    def _codes(self, objects: ObjectArray, absent: int) -> IntArray:
        n = len(objects)
        codes = np.empty((n, len(self._maps)), dtype=np.int64)
        if n == 1:  # a request: array operations would take longer than the look-ups
            row = objects.tolist()[0]
            for j, known in enumerate(self._maps):
                codes[0, j] = known.get(row[j], absent)
            return codes
        for j, known in enumerate(self._maps if n else ()):
            # One call looks all of them up, in half the time of a call each.
            codes[:, j] = np.fromiter(itemgetter(*objects[:, j].tolist())(known), np.int64, n)
        return codes if absent == _UNKNOWN else np.maximum(codes, absent, out=codes)


class _Slots(dict[str | None, int]):
    """Slots of one feature's values, _UNKNOWN for those without."""

    def __missing__(self, value: str | None) -> int:
        return _UNKNOWN


def _hashed(feature: int, value: str) -> int:
    return zlib.crc32(f"{feature}\t{value}".encode("utf-8", "surrogatepass")) % OVERFLOW
