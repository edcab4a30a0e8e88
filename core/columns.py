"""Decoded feature values into columns, strict about what a column cannot hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any

import numpy as np
from msgspec.structs import astuple

from core.config import LimitsConfig
from core.errors import BadRecord
from core.paths import Leaf, Steps, build_struct
from core.plain import FloatArray, ObjectArray
from core.schema import Feature, Schema

EXACT = 2.0**53  # above it, float64 holds not every integer

Scalar = bool | int | float | str | None
_TYPES: dict[str, Any] = {
    "float": int | float,
    "int": int | float,  # 3.0 is an integer too; 3.5 is refused below
    "bool": bool,
    "category": str | int,
    "any": Scalar,
}


class FeatureReader:
    """Reads a schema's features out of decoded objects. `struct` decodes one features object by msgspec;
    a reader can also be bound to a record that has the features among its own fields (`leaves`, then the
    `getters` of `build_struct`). With `by_name`, features sit under their names whatever their paths.
    """

    def __init__(
        self,
        schema: Schema,
        limits: LimitsConfig,
        *,
        by_name: bool = False,
        getters: Mapping[Steps, Callable[[Any], Any]] | None = None,
    ) -> None:
        self.schema = schema
        self.limits = limits
        if getters is not None:
            self.struct: Any = None
        elif schema.open:
            self.struct = dict[str, Scalar]
            getters = {(schema.features[0].name,): lambda row: row}
        else:
            self.struct, getters = build_struct(leaves(schema, by_name=by_name))
        get = getters
        self._numeric = [(f, get[_steps(f, by_name)]) for f in schema.numeric]
        self._objects = [(f, get[_steps(f, by_name)]) for f in (*schema.categories, *schema.anys)]
        self._ints = np.array([f.kind == "int" for f in schema.numeric], dtype=bool)
        self._pack = self._packer(by_name)
        # One comparison tells whether every value is plain: within limits and exact as an integer.
        self._easy = min(limits.max_abs_value, EXACT)

    def arrays(self, rows: Sequence[Any]) -> tuple[FloatArray, ObjectArray]:
        """(X, objects) as in `Batch`. Raises BadRecord for the first row that a column cannot hold."""
        X, objects, bad = self.columns(rows)
        if bad:
            raise next(iter(bad.values()))
        return X, objects

    def columns(self, rows: Sequence[Any]) -> tuple[FloatArray, ObjectArray, dict[int, BadRecord]]:
        """(X, objects, bad): what `arrays` gives, and the rows that cannot be held with the reason; their
        values in the arrays mean nothing."""
        n = len(rows)
        objects = np.empty((n, len(self._objects)), dtype=object)
        try:
            X = self._numbers(rows)
            bad: dict[int, BadRecord] = {}
        except OverflowError:  # an integer beyond float64
            X = np.empty((n, len(self._numeric)))
            bad = self._fill_slowly(rows, X)
        self._check_numbers(rows, X, bad)
        for j, (feature, get) in enumerate(self._objects):
            values = list(map(get, rows))
            if feature.kind == "category":
                self._check_categories(feature, values, bad)
            else:
                self._check_anys(feature, values, bad)
            objects[:, j] = values
        return X, objects, bad

    def _packer(self, by_name: bool) -> Callable[[Any], bytes] | None:
        """Packs a row's numbers into float64s, where they are the first fields of `struct`: then a whole
        batch is one buffer, in a third of the time that column by column takes."""
        fields = getattr(self.struct, "__struct_fields__", ())
        plain = all(not f.optional and len(_steps(f, by_name)) == 1 for f, _ in self._numeric)
        n = len(self._numeric)
        if not n or not plain or len(fields) != n + len(self._objects):
            return None
        pack = Struct(f"{n}d").pack
        if len(fields) == n:
            return lambda row: pack(*astuple(row))
        return lambda row: pack(*astuple(row)[:n])

    def _numbers(self, rows: Sequence[Any]) -> FloatArray:
        n = len(rows)
        if self._pack is not None and n:
            packed = bytearray().join(map(self._pack, rows))  # a bytearray, so that the array is writable
            return np.frombuffer(packed).reshape(n, len(self._numeric))
        X = np.empty((n, len(self._numeric)))
        for j, (feature, get) in enumerate(self._numeric):
            if feature.optional:
                X[:, j] = np.array(list(map(get, rows)), dtype=np.float64)  # None becomes NaN
            else:
                X[:, j] = np.fromiter(map(get, rows), np.float64, n)
        return X

    def _fill_slowly(self, rows: Sequence[Any], X: FloatArray) -> dict[int, BadRecord]:
        bad: dict[int, BadRecord] = {}
        for i, row in enumerate(rows):
            for j, (feature, get) in enumerate(self._numeric):
                value = get(row)
                try:
                    X[i, j] = math.nan if value is None else value
                except OverflowError:
                    X[i, j] = 0.0
                    bad.setdefault(i, _out_of_range(feature, value))
        return bad

    def _check_numbers(self, rows: Sequence[Any], X: FloatArray, bad: dict[int, BadRecord]) -> None:
        if X.size == 0:
            return
        suspect = np.abs(X) >= self._easy  # NaN: missing, not suspect
        if self._ints.any():
            fraction = X[:, self._ints]
            suspect[:, self._ints] |= (fraction != np.floor(fraction)) & ~np.isnan(fraction)
        if not suspect.any():
            return
        for i, j in np.argwhere(suspect).tolist():
            feature, get = self._numeric[j]
            value = get(rows[i])
            if abs(value) > self.limits.max_abs_value:
                bad.setdefault(i, _out_of_range(feature, value))
            elif feature.kind == "int" and (value != int(value) or abs(value) > EXACT):
                bad.setdefault(
                    i,
                    BadRecord(
                        "inexact_number", f"features.{feature.name}: {_show(value)} is no exact integer"
                    ),
                )
            elif isinstance(value, int) and int(float(value)) != value:
                bad.setdefault(
                    i,
                    BadRecord(
                        "inexact_number",
                        f"features.{feature.name}: {_show(value)} has more digits than a float holds",
                    ),
                )

    def _check_categories(self, feature: Feature, values: list[Any], bad: dict[int, BadRecord]) -> None:
        limit = self.limits.max_category_chars
        if set(map(type, values)) == {str} and max(map(len, values)) <= limit:
            return
        for i, value in enumerate(values):
            if isinstance(value, int):
                values[i] = _digits(value)
            if value is not None and len(values[i]) > limit:
                detail = (
                    f"features.{feature.name}: a category of {len(values[i])} characters, at most {limit}"
                )
                bad.setdefault(i, BadRecord("category_too_long", detail))

    def _check_anys(self, feature: Feature, values: list[Any], bad: dict[int, BadRecord]) -> None:
        for i, value in enumerate(values):
            items = value.items() if isinstance(value, dict) else ((feature.name, value),)
            for name, item in items:
                if isinstance(item, int | float) and not abs(item) <= self.limits.max_abs_value:
                    bad.setdefault(i, _out_of_range(Feature(name, "any"), item))
                elif isinstance(item, str) and len(item) > self.limits.max_category_chars:
                    limit = self.limits.max_category_chars
                    detail = f"features.{name}: a text of {len(item)} characters, at most {limit}"
                    bad.setdefault(i, BadRecord("category_too_long", detail))


def leaves(schema: Schema, *, by_name: bool = False) -> dict[Steps, Leaf]:
    """The fields of a closed schema for `build_struct`."""
    return {_steps(f, by_name): _leaf(f) for f in schema.features}


def _steps(feature: Feature, by_name: bool) -> Steps:
    return (feature.name,) if by_name else feature.steps


def _leaf(feature: Feature) -> Leaf:
    kind = _TYPES[feature.kind]
    if feature.kind == "any":
        return Leaf(kind, None) if feature.optional else Leaf(kind)
    return Leaf(kind | None, None) if feature.optional else Leaf(kind)


def _digits(value: int) -> str:
    # CPython refuses to print integers of more than 4,300 digits; such a one is refused as too long.
    return str(value) if value.bit_length() < 10_000 else "9" * 4_000


def _show(value: float) -> str:
    text = _digits(value) if isinstance(value, int) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}… ({len(text)} characters)"


def _out_of_range(feature: Feature, value: float) -> BadRecord:
    return BadRecord("number_out_of_range", f"features.{feature.name}: {_show(value)} is beyond the limit")
