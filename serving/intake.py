"""Events and labels from clients that speak no Kafka: checked like the log's own records, then written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from core.config import FieldsConfig, LabelFieldsConfig
from core.decoding import IdType, TimestampType, bad_record, check_depth, check_ts
from core.errors import BadRecord
from core.plain import State
from core.records import OutRecord
from serving.interface import DECODING, Interface, request_id
from serving.problems import within

Append = Callable[[str, Sequence[OutRecord]], None]  # topic, records: delivered or raised

_MAX_RECORDS = 10_000  # a request


class Intake:
    """Reads what clients send to `/events` or `/labels` of one model, for one manifest.

    A record is `{"id", "ts", "features", "label"}`: features under their names, the label only where the
    model has no topic for labels; or `{"id", "ts", "label"}`. What is written has its fields where the
    manifest says that they sit. Values are written as they came, digit for digit. An id is asked for, so
    that a client may send again what it got no answer to: the second one is known by its id.
    """

    def __init__(self, manifest: State, interface: Interface, *, events: bool) -> None:
        self.topic: str = manifest["events"] if events else manifest["labels"]
        self._manifest = manifest
        self._interface = interface
        self._classes = tuple(manifest["classes"] or ())
        self._task: str = manifest["task"]
        with_label = not events or manifest["labels"] is None
        typed: list[Any] = [("id", IdType | msgspec.UnsetType, msgspec.UNSET), ("ts", TimestampType, None)]
        raw: list[Any] = [("ts", msgspec.Raw, msgspec.Raw()), ("label", msgspec.Raw, msgspec.Raw())]
        if events:
            # Optional here, so that one type reads a lone record and {"records": [...]} alike.
            typed.append(("features", interface.features_type | msgspec.UnsetType, msgspec.UNSET))
            raw.append(("features", dict[str, msgspec.Raw], {}))
        if with_label:
            typed.append(("label", self._label_type() | None, None))
        self._events, self._with_label = events, with_label
        self._decode = _decoder("Record", typed)
        self._decode_raw = _decoder("RawRecord", raw)
        at: FieldsConfig | LabelFieldsConfig
        at = FieldsConfig(**manifest["fields"]) if events else LabelFieldsConfig(**manifest["label_fields"])
        self._at_id, self._at_ts, self._at_label = _steps(at.id), _steps(at.ts), _steps(at.label)
        self._at_features = _steps(at.features) if isinstance(at, FieldsConfig) else ()
        self._paths = {f.name: f.steps for f in interface.schema.features if not interface.schema.open}

    def fits(self, manifest: State, interface: Interface) -> bool:
        """Whether this one still reads for that manifest."""
        if manifest is self._manifest:
            return True
        if interface is not self._interface or _shape(manifest) != _shape(self._manifest):
            return False
        self._manifest = manifest
        return True

    def read(self, body: bytes) -> list[OutRecord]:
        """The records of a request: one object, or `{"records": [...]}`. Raises BadRecord for the first
        one that is wrong; then none is to be written."""
        try:
            if not body.isascii():
                body.decode()
            request, raw = self._decode(body), self._decode_raw(body)
        except DECODING as error:
            raise bad_record(error) from None
        if request.records is msgspec.UNSET:
            return [self._record(request, raw)]
        if not 1 <= len(request.records) <= _MAX_RECORDS:
            raise BadRecord("wrong_type", f"records: 1 to {_MAX_RECORDS}, not {len(request.records)}")
        out: list[OutRecord] = []
        for i, (record, written) in enumerate(zip(request.records, raw.records, strict=True)):
            try:
                out.append(self._record(record, written))
            except BadRecord as error:
                raise within(f"records[{i}]", error) from None
        return out

    def _record(self, record: Any, raw: Any) -> OutRecord:
        if record.id is msgspec.UNSET or record.id is None:
            raise BadRecord("missing_field", "id: what the label, or a second try, is known by")
        id_ = request_id(record.id)
        if record.ts is not None:
            check_ts(record.ts)
        tree: dict[str, Any] = {}
        if self._events:
            if record.features is msgspec.UNSET:
                raise BadRecord("missing_field", "features: an object of features")
            self._interface.check_features(record.features)
            for name, value in raw.features.items():
                _put(tree, (*self._at_features, *self._paths.get(name, (name,))), value)
        if self._with_label:
            if record.label is None and not self._events:
                raise BadRecord("missing_field", "label: the truth for the id")
            if record.label is not None:
                self._check_label(record.label)
                _put(tree, self._at_label, raw.label)
        _put(tree, self._at_id, id_)
        if record.ts is not None:
            _put(tree, self._at_ts, raw.ts)
        value = msgspec.json.encode(tree)
        limits = self._interface.limits
        if len(value) > limits.max_bytes:
            raise BadRecord("too_large", f"record: {len(value)} bytes, at most {limits.max_bytes}")
        check_depth(value, limits.max_depth)
        return OutRecord(value, key=id_.encode())

    def _label_type(self) -> Any:
        if self._task == "regression":
            return int | float
        if self._task == "binary" and self._classes:
            return type(self._classes[0])
        if self._classes and isinstance(self._classes[0], bool):
            return bool
        return str | int

    def _check_label(self, label: Any) -> None:
        limits = self._interface.limits
        if self._task == "binary" and self._classes and label not in self._classes:
            known = msgspec.json.encode(self._classes).decode()
            raise BadRecord("unknown_class", f"label: one of {known}")
        if isinstance(label, str) and len(label) > limits.max_category_chars:
            raise BadRecord(
                "category_too_long", f"label: {len(label)} characters, at most {limits.max_category_chars}"
            )
        if isinstance(label, int | float) and abs(label) > limits.max_abs_value:
            raise BadRecord("number_out_of_range", "label: a number beyond the limit")


def _shape(manifest: State) -> list[Any]:
    return [manifest[key] for key in ("task", "classes", "events", "labels", "fields", "label_fields")]


def _decoder(name: str, fields: list[Any]) -> Callable[[bytes], Any]:
    record = msgspec.defstruct(name, fields)
    request = msgspec.defstruct(
        f"{name}s",
        [*fields, ("records", list[record] | msgspec.UnsetType, msgspec.UNSET)],  # type: ignore[valid-type]
    )
    return msgspec.json.Decoder(request).decode


def _put(tree: dict[str, Any], steps: tuple[str, ...], value: Any) -> None:
    """Sets the value at a path; whatever else sat on the way gives place."""
    for step in steps[:-1]:
        inner = tree.get(step)
        if not isinstance(inner, dict):
            inner = tree[step] = {}
        tree = inner
    tree[steps[-1]] = value


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()
