"""A turn's records as the fold sees them: lanes merged into one order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.batch import Batch
from core.errors import BadRecord
from core.plain import BoolArray, IntArray, objects
from core.records import Lane, Records, Turn
from stream.codec.decoder import Decoded


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies."""

    lane: Lane
    offset: int


@dataclass(frozen=True, slots=True)
class LaneInput:
    """What was read from one lane for a turn, and what it says."""

    lane: Lane
    records: Records
    decoded: Decoded
    holds_labels: bool  # the labels topic; else events


@dataclass(frozen=True, slots=True)
class TurnInput:
    """The turn's events and labels. Positions are places in the merged order, unique over both but for
    an event and the label it carries. `event_labels` are those carried labels (None: none yet);
    None as a whole where labels have their own topic. `forgets` are ids to forget once the records of
    lower positions are taken, in order."""

    turn: Turn
    events: Batch
    event_positions: IntArray
    event_labels: list[Any] | None
    label_ids: list[str]
    label_values: list[Any]
    label_ts_ms: IntArray
    label_positions: IntArray
    forgets: list[tuple[int, str]]
    lanes: Sequence[LaneInput]
    rejects: list[tuple[Place, BadRecord]]
    _event_lanes: IntArray
    _event_rows: IntArray
    _label_lanes: IntArray
    _label_rows: IntArray

    def event_place(self, i: int) -> Place:
        """Where event i lies."""
        return self._place(int(self._event_lanes[i]), int(self._event_rows[i]))

    def label_place(self, i: int) -> Place:
        """Where label i lies."""
        return self._place(int(self._label_lanes[i]), int(self._label_rows[i]))

    def _place(self, lane: int, row: int) -> Place:
        source = self.lanes[lane]
        return Place(source.lane, int(source.records.offsets[row]))

    def value(self, place: Place) -> tuple[bytes | None, bytes | None]:
        """The record's key and value there. Raises KeyError where the turn has no such record."""
        for source in self.lanes:
            if source.lane == place.lane:
                row = int(np.searchsorted(source.records.offsets, place.offset))
                if row < len(source.records) and source.records.offsets[row] == place.offset:
                    return source.records.keys[row], source.records.values[row]
        raise KeyError(place)

    def without_events(self, rows: BoolArray) -> TurnInput:
        """The same without the events at these rows (a mask)."""
        keep = np.flatnonzero(~rows)
        labels = None if self.event_labels is None else [self.event_labels[i] for i in keep.tolist()]
        return TurnInput(
            self.turn,
            self.events.take(keep),
            self.event_positions[keep],
            labels,
            self.label_ids,
            self.label_values,
            self.label_ts_ms,
            self.label_positions,
            self.forgets,
            self.lanes,
            self.rejects,
            self._event_lanes[keep],
            self._event_rows[keep],
            self._label_lanes,
            self._label_rows,
        )

    def split(self, places: Sequence[int]) -> Iterator[TurnInput]:
        """The same in pieces: the records below each of these positions (which grow), then the rest."""
        events = [0, *np.searchsorted(self.event_positions, places).tolist(), len(self.events)]
        labels = [0, *np.searchsorted(self.label_positions, places).tolist(), len(self.label_ids)]
        for i in range(len(places) + 1):
            own, other = slice(*events[i : i + 2]), slice(*labels[i : i + 2])
            yield TurnInput(
                self.turn,
                self.events.take(np.arange(own.start, own.stop)),
                self.event_positions[own],
                None if self.event_labels is None else self.event_labels[own],
                self.label_ids[other],
                self.label_values[other],
                self.label_ts_ms[other],
                self.label_positions[other],
                self.forgets,
                self.lanes,
                self.rejects,
                self._event_lanes[own],
                self._event_rows[own],
                self._label_lanes[other],
                self._label_rows[other],
            )


@dataclass(slots=True)
class _Side:
    """Columns of the events, or of the labels, of all lanes, before the merge."""

    ids: list[str] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    parts: list[Decoded] = field(default_factory=list)
    keys: list[IntArray] = field(default_factory=list)
    lanes: list[IntArray] = field(default_factory=list)

    def add(self, source: LaneInput, index: int, key: IntArray) -> None:
        decoded = source.decoded
        self.ids.extend(decoded.ids)
        if decoded.labels is not None:
            self.labels.extend(decoded.labels)
        self.parts.append(decoded)
        self.keys.append(key)
        self.lanes.append(np.full(len(decoded.ids), index, dtype=np.int64))


def merge(turn: Turn, sources: Mapping[Lane, LaneInput], *, nothing: Batch, labels_apart: bool) -> TurnInput:
    """Lanes merged by record timestamp, each keeping its own order (a record never overtakes one that
    stands before it in its lane); at equal times labels come before events, then by lane: a label
    known at an instant may serve an event of that instant. `nothing` is a batch of no rows."""
    lanes = sorted(sources.values(), key=lambda s: (not s.holds_labels, s.lane))
    events, labels = _Side(), _Side()
    rejects: list[tuple[Place, BadRecord]] = []
    keys: list[IntArray] = []
    for index, source in enumerate(lanes):
        decoded = source.decoded
        if decoded.rejects:  # offsets cost time where a log must be asked for them
            offsets = source.records.offsets
            rejects.extend((Place(source.lane, int(offsets[row])), error) for row, error in decoded.rejects)
        if len(lanes) == 1:
            key = decoded.rows
        else:
            key = (
                np.maximum.accumulate(source.records.timestamps_ms)[decoded.rows]
                if len(decoded.rows)
                else decoded.rows
            )
        keys.append(key)
        (labels if source.holds_labels else events).add(source, index, key)
    event_count, label_count = len(events.ids), len(labels.ids)
    if len(lanes) <= 1:
        event_positions = np.arange(event_count)
        label_positions = np.arange(label_count)
    else:
        # Lanes are already in order of precedence, rows in lane order, and the sort is stable.
        order = np.argsort(np.concatenate([*labels.keys, *events.keys, _NONE]), kind="stable")
        positions = np.empty(len(order), dtype=np.int64)
        positions[order] = np.arange(len(order))
        label_positions, event_positions = positions[:label_count], positions[label_count:]
    batch, event_lanes, event_rows, event_labels, event_positions = _sorted_events(
        events, event_positions, nothing, labels_apart
    )
    label_order = np.argsort(label_positions, kind="stable").tolist() if len(labels.parts) > 1 else None
    label_lanes = np.concatenate([*labels.lanes, _NONE])
    label_rows = np.concatenate([*(p.rows for p in labels.parts), _NONE])
    label_ts = np.concatenate([*(p.ts_ms for p in labels.parts), _NONE])
    if label_order is not None:
        labels.ids = [labels.ids[i] for i in label_order]
        labels.labels = [labels.labels[i] for i in label_order]
        label_lanes, label_rows = label_lanes[label_order], label_rows[label_order]
        label_ts, label_positions = label_ts[label_order], label_positions[label_order]
    return TurnInput(
        turn,
        batch,
        event_positions,
        event_labels,
        labels.ids,
        labels.labels,
        label_ts,
        label_positions,
        _forgets(lanes, keys),
        lanes,
        rejects,
        event_lanes,
        event_rows,
        label_lanes,
        label_rows,
    )


_NONE = np.empty(0, dtype=np.int64)


def _forgets(lanes: Sequence[LaneInput], keys: Sequence[IntArray]) -> list[tuple[int, str]]:
    """Tombstones with how many records come before them in the merged order. `keys` are the times by which
    each lane's good records were merged."""
    found: list[tuple[int, str]] = []
    for index, source in enumerate(lanes):
        forgets = source.decoded.forgets
        if not forgets:
            continue
        rows = np.array([row for row, _ in forgets])
        before = np.searchsorted(source.decoded.rows, rows)
        if len(lanes) > 1:
            times = np.maximum.accumulate(source.records.timestamps_ms)[rows]
            for other, key in enumerate(keys):
                if other != index:
                    before += np.searchsorted(key, times, side="right" if other < index else "left")
        found.extend(zip(before.tolist(), (name for _, name in forgets), strict=True))
    return sorted(found, key=lambda forget: forget[0])


def _sorted_events(
    side: _Side, positions: IntArray, nothing: Batch, labels_apart: bool
) -> tuple[Batch, IntArray, IntArray, list[Any] | None, IntArray]:
    ids = objects(side.ids)
    event_labels = None if labels_apart else side.labels
    if not side.parts:
        return nothing, _NONE, _NONE, event_labels, positions
    if len(side.parts) == 1:
        part = side.parts[0]
        return Batch(ids, part.ts_ms, part.X, part.objects), side.lanes[0], part.rows, event_labels, positions
    order = np.argsort(positions, kind="stable")
    batch = Batch(
        ids,
        np.concatenate([p.ts_ms for p in side.parts]),
        np.concatenate([p.X for p in side.parts]),
        np.concatenate([p.objects for p in side.parts]),
    ).take(order)
    rows = np.concatenate([p.rows for p in side.parts])[order]
    if event_labels is not None:
        event_labels = [event_labels[i] for i in order.tolist()]
    return batch, np.concatenate(side.lanes)[order], rows, event_labels, positions[order]
