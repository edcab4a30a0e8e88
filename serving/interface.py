"""What a client may send to a model: typed decoding of requests by the model's own schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import hypot
from operator import attrgetter
from struct import Struct
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np

from core.columns import EXACT, FeatureReader
from core.config import LimitsConfig
from core.decoding import IdType, bad_record
from core.errors import BadRecord
from core.plain import FloatArray, ObjectArray
from core.schema import Schema
from serving.problems import within

DECODING = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}").fullmatch


class Interface:
    """Decodes prediction requests. Features sit under their names, whatever their paths in the log.
    Made once for a schema and its limits and shared by all versions that have them."""

    def __init__(self, schema: Schema, limits: LimitsConfig) -> None:
        self.schema = schema
        self.limits = limits
        self._reader = FeatureReader(schema, limits, by_name=True)
        features = self._reader.struct
        instance = msgspec.defstruct(
            "Instance", [("features", features), ("id", IdType, None)], gc=schema.open
        )
        request = msgspec.defstruct(
            "Request",
            [
                ("features", features | msgspec.UnsetType, msgspec.UNSET),
                ("id", IdType, None),
                ("instances", list[instance] | msgspec.UnsetType, msgspec.UNSET),  # type: ignore[valid-type]
            ],
        )
        self._fast = _one_row(schema, limits, features)
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(request).decode

    def read(self, body: bytes) -> tuple[list[str], FloatArray, ObjectArray]:
        """(ids, X, objects) of a prediction request: `{"id", "features"}` or `{"instances": [...]}`.
        An instance without an id gets one. Raises BadRecord naming the first field that is wrong."""
        try:
            if not body.isascii():
                body.decode()  # msgspec looks at no text that it skips
            request = self._decode(body)
        except DECODING as error:
            raise bad_record(error) from None
        instances = request.instances
        if instances is msgspec.UNSET:
            if request.features is msgspec.UNSET:
                raise BadRecord("missing_field", "features: an object of features, or a list of instances")
            ids = [request_id(request.id)]
            X, cells = self._fast(request.features) or self._reader.arrays((request.features,))
            return ids, X, cells
        return self._many(request)

    def _many(self, request: Any) -> tuple[list[str], FloatArray, ObjectArray]:
        if request.features is not msgspec.UNSET or request.id is not None:
            raise BadRecord("wrong_type", "instances: either a list of instances, or one id with features")
        instances: Sequence[Any] = request.instances
        if not instances:
            raise BadRecord("missing_field", "instances: at least one")
        ids = []
        for i, instance in enumerate(instances):
            try:
                ids.append(request_id(instance.id))
            except BadRecord as error:
                raise within(f"instances[{i}]", error) from None
        X, cells, bad = self._reader.columns([instance.features for instance in instances])
        if bad:
            i = min(bad)
            raise within(f"instances[{i}]", bad[i])
        return ids, X, cells

    def check_features(self, features: Any) -> None:
        """Raises BadRecord where a decoded features object cannot be held."""
        self._reader.arrays((features,))

    @property
    def features_type(self) -> Any:
        """The msgspec type of one features object."""
        return self._reader.struct


def request_id(value: str | int | None) -> str:
    """The id of a request: `[A-Za-z0-9_.:-]{1,128}` or an integer; a new one for None. Raises BadRecord."""
    if value is None:
        return uuid4().hex
    text = value if isinstance(value, str) else str(value) if value.bit_length() <= 64 else ""
    if _ID(text) is None:
        raise BadRecord("bad_id", "id: 1 to 128 of A-Z a-z 0-9 _ . : -")
    return text


def _one_row(
    schema: Schema, limits: LimitsConfig, features: Any
) -> Callable[[Any], tuple[FloatArray, ObjectArray] | None]:
    """A reader of one row that knows plain values only: None for whatever needs a second look, and then
    `FeatureReader` decides. An array operation a column costs more than all else in a small request."""
    if schema.open or schema.anys:
        return lambda _row: None
    at = {field.encode_name: field.name for field in msgspec.structs.fields(features)}
    numbers = _getter([at[f.name] for f in schema.numeric])
    integers = _getter([at[f.name] for f in schema.numeric if f.kind == "int"])
    texts = _getter([at[f.name] for f in schema.categories])
    easy = min(limits.max_abs_value, EXACT) / 2  # half, for what rounding may do to the length of a row
    longest, width = limits.max_category_chars, len(schema.categories)

    has_integers = any(f.kind == "int" for f in schema.numeric)
    pack, shape = Struct(f"{len(schema.numeric)}d").pack, (1, len(schema.numeric))

    def read(row: Any) -> tuple[FloatArray, ObjectArray] | None:
        values = numbers(row)
        try:
            if not hypot(*values) < easy:  # no value is larger than all together
                return None
        except (TypeError, OverflowError):  # a missing value; an integer beyond float64
            return None
        if has_integers:
            for value in integers(row):
                if type(value) is not int:
                    return None
        cells = np.empty((1, width), dtype=object)
        if width:
            for j, word in enumerate(texts(row)):
                if type(word) is not str or len(word) > longest:
                    return None
                cells[0, j] = word
        # A bytearray, so that the array is writable; numpy takes longer to find out what a tuple holds.
        return np.ndarray(shape, np.float64, bytearray(pack(*values))), cells

    return read


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda row: (get(row),)
    return attrgetter(*names) if names else lambda _row: ()
