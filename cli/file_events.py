"""A file of rows as the events and labels that they stand for, in the order in which they happen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cli.files.cells import to_cells
from cli.files.columns import ColumnPlan, plan_columns
from cli.files.merge import LabelMerger, Labels
from cli.files.rows import BATCH_ROWS, Rows, Table
from cli.files.tables import open_table
from cli.files.times import to_times
from cli.files.wire import Place, Shape, WireColumns
from core.config import ModelConfig
from core.errors import ConfigError
from core.plain import BoolArray, IntArray, objects
from core.records import OutRecord

SORTABLE_ROWS = 20_000_000


@dataclass(frozen=True, slots=True)
class FileChunk:
    """The next records of a file. `order` says how the two topics interleave: False, the next of
    `events`; True, the next of `labels`. Without a labels topic there are only events."""

    events_topic: str
    labels_topic: str | None
    events: WireColumns
    labels: WireColumns
    order: BoolArray

    def __len__(self) -> int:
        return len(self.order)

    @property
    def timestamps_ms(self) -> IntArray:
        """Of all records in order; they never go back."""
        merged = np.empty(len(self.order), np.int64)
        merged[~self.order] = self.events.timestamps_ms
        merged[self.order] = self.labels.timestamps_ms
        return merged

    def records(self) -> list[tuple[str, OutRecord]]:
        """All records in order, each with its topic."""
        events, labels = (
            _out_records(self.events_topic, self.events),
            _out_records(self.labels_topic or "", self.labels),
        )
        return [next(labels) if is_label else next(events) for is_label in self.order.tolist()]


def _out_records(topic: str, columns: WireColumns) -> Iterator[tuple[str, OutRecord]]:
    for value, key, at in zip(columns.values, columns.keys, columns.timestamps_ms.tolist(), strict=True):
        yield topic, OutRecord(value, key, at)


class FileEvents:
    """One file read for one model (see `FileConfig`). Every row is an event; its label follows when
    `label_ts` says, or at once, or (no label, or an empty `label_ts`) never. A label dated before its
    event comes right after it, at the event's time. Cells that do not fit the schema are sent as they
    are: the pipeline refuses them with a reason. A row whose `ts` is no time keeps its place behind the
    row before it.

    Memory: without `ts`, or with rows in the order of `ts`, one batch of rows, 8 bytes a row for the
    times, and the labels still to come. With rows out of order, the needed columns of the whole file
    (files of more than 20 million rows are refused then).
    """

    def __init__(self, path: Path, name: str, model: ModelConfig, limit: int | None = None) -> None:
        """Opens the file and reads its times; with `limit`, only the first `limit` rows in time order are
        sent, and their labels. Raises ConfigError, also while chunks are read."""
        self._path = path
        self._table: Table = open_table(path)
        self._plan: ColumnPlan = plan_columns(path, self._table, name, model)
        self._model = model
        self._limit = limit
        self._event_shape, self._label_shape = _shapes(self._plan, model)
        self._times: IntArray | None = None
        self._order: IntArray | None = None  # None: rows come as they lie
        if self._plan.ts is not None:
            self._read_times(self._plan.ts)
        known = self._table.rows if self._times is None else len(self._times)
        self.rows: int | None = known if limit is None or known is None else min(known, limit)

    def _read_times(self, column: str) -> None:
        parts: list[IntArray] = []
        last = None
        for rows in self._table.batches([column]):
            times = to_times(rows.columns[column])
            ms = times.ms
            if not times.known.all():
                places = np.where(times.known, np.arange(len(ms)), -1)
                places = np.maximum.accumulate(places)
                first = ms[times.known][0] if times.known.any() else 0
                before = last if last is not None else first
                ms = np.where(places >= 0, ms[np.maximum(places, 0)], before)
            if len(ms):
                last = int(ms[-1])
            parts.append(ms)
        times_ms = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        if (np.diff(times_ms) < 0).any():
            if len(times_ms) > SORTABLE_ROWS:
                raise ConfigError(
                    f'{self._path}: {len(times_ms)} rows, not in the order of "{column}"; '
                    f"at most {SORTABLE_ROWS} can be put in order here: sort the file first"
                )
            self._order = np.argsort(times_ms, kind="stable")
            times_ms = times_ms[self._order]
        self._times = times_ms

    def chunks(self) -> Iterator[FileChunk]:
        """The records in the order in which they happen; each call reads the file from its start."""
        merger = LabelMerger()
        done = 0
        for rows in self._rows():
            if not rows.count:
                continue
            if self._times is not None and done + rows.count > len(self._times):
                raise ConfigError(f"{self._path}: the file grew while it was read")
            yield self._chunk(rows, done, merger)
            done += rows.count
        none = WireColumns([], [], np.zeros(0, np.int64))
        for labels in merger.rest(BATCH_ROWS):
            yield self._file_chunk(none, labels, np.ones(len(labels), np.bool_))

    def _rows(self) -> Iterator[Rows]:
        columns = self._plan.needed()
        left = self._limit
        if self._order is not None:
            yield from self._table.gather(columns, self._order[:left])
            return
        for rows in self._table.batches(columns):
            if left is None or rows.count <= left:
                yield rows
            else:
                yield Rows({n: c[:left] for n, c in rows.columns.items()}, left)
            if left is not None:
                left -= min(left, rows.count)
                if not left:
                    return

    def _chunk(self, rows: Rows, start: int, merger: LabelMerger) -> FileChunk:
        plan = self._plan
        places = np.arange(start, start + rows.count, dtype=np.int64)
        ts = places if self._times is None else self._times[start : start + rows.count]
        ids: list[Any] = (
            to_cells(rows.columns[plan.id], "category") if plan.id else list(map(str, places.tolist()))
        )
        stamps: list[Any] = ts.tolist()
        if plan.ts is not None:
            times = to_times(rows.columns[plan.ts])
            for i in np.flatnonzero(~times.known).tolist():
                stamps[i] = times.raw.get(i)
        truths = to_cells(rows.columns[plan.label], plan.label_kind) if plan.label else [None] * rows.count
        columns = [ids, stamps, *(to_cells(rows.columns[f.column], f.kind) for f in plan.features)]
        if self._model.labels is None:
            columns.append(truths)
        events = WireColumns(self._event_shape.encode(columns), _keys(ids), ts)
        if self._model.labels is None:
            labels = Labels(np.zeros(0, np.int64), np.zeros(0, np.int64), np.empty((0, 3), object))
        else:
            labels = self._labels(rows, places, ts, ids, truths)
        order, coming = merger.push(ts, labels)
        return self._file_chunk(events, coming, order)

    def _labels(
        self, rows: Rows, places: IntArray, ts: IntArray, ids: list[Any], truths: list[Any]
    ) -> Labels:
        has = np.array([t is not None for t in truths], np.bool_)
        at = ts
        raw: dict[int, Any] = {}
        if self._plan.label_ts is not None:
            times = to_times(rows.columns[self._plan.label_ts])
            raw = times.raw
            unreadable = np.zeros(rows.count, np.bool_)
            unreadable[list(raw)] = True
            has &= times.known | unreadable
            at = np.where(times.known, np.maximum(times.ms, ts), ts)
        cells = np.empty((rows.count, 3), object)
        cells[:, 0] = objects(ids)
        cells[:, 1] = objects([raw.get(i, v) for i, v in enumerate(at.tolist())] if raw else at.tolist())
        cells[:, 2] = objects(truths)
        return Labels(at[has], places[has], cells[has])

    def _file_chunk(self, events: WireColumns, labels: Labels, order: BoolArray) -> FileChunk:
        cells = [labels.cells[:, i].tolist() for i in range(3)]
        values = self._label_shape.encode(cells) if len(labels) else []
        written = WireColumns(values, _keys(cells[0]), labels.at_ms)
        return FileChunk(self._model.events, self._model.labels, events, written, order)


def _keys(ids: list[Any]) -> list[bytes | None]:
    return [None if i is None else str(i).encode() for i in ids]


def _shapes(plan: ColumnPlan, model: ModelConfig) -> tuple[Shape, Shape]:
    def steps(path: str) -> tuple[str, ...]:
        return tuple(path.split("."))

    fields, of_label = model.fields, model.label_fields
    prefix = steps(fields.features) if fields.features else ()
    places = [Place(steps(fields.id)), Place(steps(fields.ts))]
    places += [Place(prefix + f.steps, f.omit) for f in plan.features]
    if model.labels is None:
        places.append(Place(steps(fields.label), omit=True))
    return Shape(places), Shape([Place(steps(p)) for p in (of_label.id, of_label.ts, of_label.label)])


def iter_records(
    path: Path, name: str, model: ModelConfig, limit: int | None = None
) -> Iterator[list[tuple[str, OutRecord]]]:
    """The records of a file, some at a time: topic and record, in the order in which they happen."""
    for chunk in FileEvents(path, name, model, limit).chunks():
        yield chunk.records()
