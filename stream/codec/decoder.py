"""Reads a lane's records into columns; whatever cannot be read is told, and costs its neighbours nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from core.columns import FeatureReader, leaves
from core.config import ModelConfig
from core.decoding import (
    IdType,
    TimestampType,
    bad_record,
    check_depth,
    check_id,
    check_ts,
    plain_ids,
    plain_times,
)
from core.errors import BadRecord
from core.paths import Leaf, Steps, build_struct
from core.plain import FloatArray, IntArray, ObjectArray, objects
from core.records import Records

_PIECE = 65_536  # bytes


@dataclass(slots=True)
class Decoded:
    """The good records of one lane, as columns in lane order. `rows` are their places in the records
    read; `rejects` and `forgets` (tombstones) name places too."""

    rows: IntArray
    ids: list[str]
    ts_ms: IntArray
    X: FloatArray  # events only; [n, 0] for labels
    objects: ObjectArray
    labels: list[Any] | None  # as they stand in the record, None where an event has none yet
    rejects: list[tuple[int, BadRecord]] = field(default_factory=list)
    forgets: list[tuple[int, str]] = field(default_factory=list)


class RecordDecoder:
    """Decodes the records of one topic: events (with or without their label), or labels."""

    def __init__(self, config: ModelConfig, *, events: bool) -> None:
        self._limits = config.limits
        self._partition = 0
        at = config.fields if events else config.label_fields
        self._positional_ids = events and config.labels is None
        self._has_label = not events or config.labels is None
        paths = {"id": _steps(at.id), "ts": _steps(at.ts), "label": _steps(at.label)}
        fields = {paths["id"]: Leaf(IdType, None), paths["ts"]: Leaf(TimestampType, None)}
        if self._has_label:
            kind = label_type(config)
            fields[paths["label"]] = Leaf(kind | None, None) if events else Leaf(kind)
        schema = config.schema_()
        inside = _steps(config.fields.features)
        reader = FeatureReader(schema, config.limits) if events else None
        if reader is not None and inside:
            fields[inside] = Leaf(reader.struct)
        elif reader is not None:
            fields.update(leaves(schema))
        struct, getters = build_struct(fields)
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(struct).decode
        self._id, self._ts = getters[paths["id"]], getters[paths["ts"]]
        self._label = getters[paths["label"]] if self._has_label else None
        if reader is not None and not inside:
            reader = FeatureReader(schema, config.limits, getters=getters)
        self._reader = reader
        self._features = getters[inside] if inside and events else None
        # Every good record opens this many objects, so that few more in a whole batch cannot hide a deep one.
        self._brackets = 1 + len({steps[:i] for steps in fields for i in range(1, len(steps))})
        self._brackets += 1 if inside and events else 0

    def decode(self, records: Records, partition: int = 0) -> Decoded:
        """All records of a read of one lane. Never raises for what a record holds."""
        self._partition = partition
        values = records.values
        rejects: list[tuple[int, BadRecord]] = []
        forgets: list[tuple[int, str]] = []
        rows: list[int] | None = None
        try:
            decoded = self._all_at_once(values)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadRecord, TypeError):
            rows, decoded = self._one_by_one(records, rejects, forgets)
        ids, bad_ids = self._ids(decoded, rows, records)
        ts_ms, bad_times = self._times(decoded, rows, records)
        bad = bad_ids | bad_times
        X, other, bad_columns = self._columns(decoded)
        bad = bad_columns | bad
        labels = None if self._label is None else list(map(self._label, decoded))
        if labels is not None:
            self._check_labels(labels, bad)
        places = np.arange(len(decoded)) if rows is None else np.array(rows, dtype=np.int64)
        if bad:
            rejects.extend((int(places[i]), error) for i, error in bad.items())
            rejects.sort(key=lambda reject: reject[0])
            keep = np.array([i for i in range(len(decoded)) if i not in bad], dtype=np.int64)
            kept = keep.tolist()
            ids = [ids[i] for i in kept]
            labels = None if labels is None else [labels[i] for i in kept]
            places, ts_ms, X, other = places[keep], ts_ms[keep], X[keep], other[keep]
        return Decoded(places, ids, ts_ms, X, other, labels, rejects, forgets)

    def _all_at_once(self, values: Sequence[bytes | None]) -> list[Any]:
        whole = b"".join(values)  # type: ignore[arg-type]  # a None (tombstone) is a TypeError: one by one
        if not whole.isascii():
            whole.decode()  # msgspec looks at no text that it skips
            for value in values:
                value.decode()  # type: ignore[union-attr]
        spare = self._limits.max_depth - self._brackets
        if _openers(whole) > len(values) * self._brackets + spare:
            for value in values:
                check_depth(value, self._limits.max_depth)  # type: ignore[arg-type]
        if len(whole) > self._limits.max_bytes:
            for value in values:
                self._check_size(value)  # type: ignore[arg-type]
        return list(map(self._decode, values))  # type: ignore[arg-type]

    def _one_by_one(
        self, records: Records, rejects: list[tuple[int, BadRecord]], forgets: list[tuple[int, str]]
    ) -> tuple[list[int], list[Any]]:
        rows: list[int] = []
        decoded: list[Any] = []
        for row, value in enumerate(records.values):
            try:
                if value is None:
                    forgets.append((row, self._key_id(records, row)))
                    continue
                self._check_size(value)
                value.decode()
                check_depth(value, self._limits.max_depth)
                decoded.append(self._decode(value))
                rows.append(row)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadRecord) as error:
                rejects.append((row, bad_record(error)))
        return rows, decoded

    def _check_size(self, value: bytes) -> None:
        if len(value) > self._limits.max_bytes:
            raise BadRecord("too_large", f"{len(value)} bytes, at most {self._limits.max_bytes}")

    def _key_id(self, records: Records, row: int) -> str:
        key = records.keys[row]
        if key is None:
            if self._positional_ids and records.values[row] is not None:
                # Its place in the log: an id that is never given twice.
                return f"@{self._partition}-{int(records.offsets[row])}"
            raise BadRecord("missing_field", "id: neither in the record nor as its key")
        try:
            return check_id(key.decode())
        except UnicodeDecodeError:
            raise BadRecord("bad_id", "id: the record's key is no UTF-8") from None

    def _ids(
        self, decoded: list[Any], rows: list[int] | None, records: Records
    ) -> tuple[list[str], dict[int, BadRecord]]:
        values = list(map(self._id, decoded))
        bad: dict[int, BadRecord] = {}
        if values and not plain_ids(values):
            for i, value in enumerate(values):
                try:
                    row = i if rows is None else rows[i]
                    values[i] = self._key_id(records, row) if value is None else check_id(value)
                except BadRecord as error:
                    bad[i] = error
        return values, bad

    def _times(
        self, decoded: list[Any], rows: list[int] | None, records: Records
    ) -> tuple[IntArray, dict[int, BadRecord]]:
        values = list(map(self._ts, decoded))
        bad: dict[int, BadRecord] = {}
        times = plain_times(values) if values else np.empty(0, dtype=np.int64)
        if times is None:
            times = np.zeros(len(values), dtype=np.int64)
            for i, value in enumerate(values):
                try:
                    row = i if rows is None else rows[i]
                    times[i] = records.timestamps_ms[row] if value is None else check_ts(value)
                except BadRecord as error:
                    bad[i] = error
        return times, bad

    def _columns(self, decoded: list[Any]) -> tuple[FloatArray, ObjectArray, dict[int, BadRecord]]:
        if self._reader is None:
            return np.empty((len(decoded), 0)), objects([]).reshape(0, 0), {}
        rows = decoded if self._features is None else list(map(self._features, decoded))
        return self._reader.columns(rows)

    def _check_labels(self, labels: list[Any], bad: dict[int, BadRecord]) -> None:
        if not labels or set(map(type, labels)) <= {bool, type(None)}:
            return
        limit = self._limits.max_abs_value
        for i, label in enumerate(labels):
            if isinstance(label, int | float) and abs(label) > limit:
                bad.setdefault(i, BadRecord("number_out_of_range", "label: a number beyond the limit"))
            elif isinstance(label, str) and len(label) > self._limits.max_category_chars:
                bad.setdefault(i, BadRecord("category_too_long", f"label: {len(label)} characters"))


def label_type(config: ModelConfig) -> Any:
    """The JSON type of the model's labels."""
    if config.task == "regression":
        return int | float
    classes = config.class_values()
    if classes is None:
        return str | int
    return type(classes[0])


def _openers(text: bytes) -> int:
    """How many { and [ there are: the two differ in one bit. In pieces that stay in the cache."""
    data = np.frombuffer(text, np.uint8)
    return sum(
        int(np.count_nonzero((data[i : i + _PIECE] | 0x20) == 0x7B)) for i in range(0, len(data), _PIECE)
    )


def _steps(path: str) -> Steps:
    return tuple(path.split(".")) if path else ()
