"""Lanes merged into one order, against taking the earliest head again and again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from core.records import Lane, OutRecord, PlainRecords, Turn
from stream.driver.reading import LaneReader
from stream.fold.fold import Fold
from stream.fold.inputs import LaneInput, Place, TurnInput, merge
from stream.log.memory_log import MemoryLog
from tests.stream.fold_harness import EVENTS, LABELS, Rec, config, event, label, tombstone

Head = tuple[Lane, int, Rec]
KINDS = st.sampled_from(["good", "good", "good", "bad", "tombstone"])
LANES = st.lists(st.lists(st.tuples(KINDS, st.integers(0, 6)), max_size=8), min_size=1, max_size=3)


def records(topic: str, lanes: list[list[tuple[str, int]]]) -> dict[Lane, list[Rec]]:
    made: dict[Lane, list[Rec]] = {}
    for partition, rows in enumerate(lanes):
        for i, (kind, at) in enumerate(rows):
            name = f"{topic}{partition}-{i}"
            if kind == "bad":
                record = Rec(Lane(topic, partition), b"{", at)
            elif kind == "tombstone":
                record = tombstone(name, at, topic=topic, lane=partition)
            elif topic == EVENTS:
                record = event(name, i, 0, at=at, lane=partition)
            else:
                record = label(name, i % 2 == 0, i, at=at, lane=partition)
            made.setdefault(record.lane, []).append(record)
    return made


def by_heads(lanes: dict[Lane, list[Rec]]) -> list[Head]:
    """Again and again the lane whose head is earliest: a record is never earlier than one before it."""
    heads = {lane: [(i, r) for i, r in enumerate(rows)] for lane, rows in lanes.items() if rows}
    latest = dict.fromkeys(heads, 0)
    merged: list[Head] = []
    while heads:
        lane = min(heads, key=lambda m: (max(latest[m], heads[m][0][1].at_ms), m.topic != LABELS, m))
        row, record = heads[lane].pop(0)
        latest[lane] = max(latest[lane], record.at_ms)
        merged.append((lane, row, record))
        if not heads[lane]:
            del heads[lane]
    return merged


def merged(lanes: dict[Lane, list[Rec]], carried: bool) -> TurnInput:
    model = config(carried=carried)
    reader = LaneReader(MemoryLog(), model, limit=1)
    sources: dict[Lane, LaneInput] = {}
    for lane, rows in lanes.items():
        n = len(rows)
        read = PlainRecords(
            np.arange(n) + 100,
            [r.value for r in rows],
            np.array([r.at_ms for r in rows], dtype=np.int64),
            [r.key for r in rows],
            n + 100,
        )
        sources[lane] = reader.decode(lane, read)
    turn = Turn(1, {lane: (100, 100 + len(rows)) for lane, rows in lanes.items()}, 0)
    return merge(turn, sources, nothing=Fold(model).nothing, labels_apart=not carried)


@given(events=LANES, labels=LANES, carried=st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_merge_takes_the_earliest_head_again_and_again(
    events: list[Any], labels: list[Any], carried: bool
) -> None:
    lanes = records(EVENTS, events) | ({} if carried else records(LABELS, labels))
    got = merged(lanes, carried)
    order = by_heads(lanes)
    good = [head for head in order if head[2].value not in (None, b"{")]
    want = [Place(lane, 100 + row) for lane, row, _ in good]
    placed = {int(p): got.event_place(i) for i, p in enumerate(got.event_positions)}
    placed |= {int(p): got.label_place(i) for i, p in enumerate(got.label_positions)}
    assert [placed[p] for p in sorted(placed)] == want
    assert list(got.event_positions) == sorted(got.event_positions)
    assert list(got.label_positions) == sorted(got.label_positions)
    assert got.events.ids.tolist() == [f"e{m.partition}-{row}" for m, row, _ in good if m.topic == EVENTS]
    assert got.events.X[:, 0].tolist() == [row for m, row, _ in good if m.topic == EVENTS]
    assert got.label_ids == [f"l{m.partition}-{row}" for m, row, _ in good if m.topic == LABELS]
    assert got.label_ts_ms.tolist() == [row for m, row, _ in good if m.topic == LABELS]
    forgets = []
    taken = 0
    for _, _, record in order:
        if record.value is None and record.key is not None:
            forgets.append((taken, record.key.decode()))
        taken += record.value not in (None, b"{")
    positions = sorted(placed)
    below = [(sum(p < place for p in positions), name) for place, name in got.forgets]
    assert Counter(below) == Counter(forgets)
    bad = [Place(lane, 100 + row) for lane, row, record in order if record.value == b"{"]
    assert Counter(place for place, _ in got.rejects) == Counter(bad)
    for place, _ in got.rejects:
        assert got.value(place) == (None, b"{")


@given(events=LANES, labels=LANES, data=st.data())
@settings(max_examples=100, deadline=None)
def test_pieces_of_a_turn_make_up_the_whole(events: list[Any], labels: list[Any], data: Any) -> None:
    whole = merged(records(EVENTS, events) | records(LABELS, labels), carried=False)
    places = sorted(data.draw(st.sets(st.integers(0, 50))))
    pieces = list(whole.split(places))
    assert len(pieces) == len(places) + 1
    assert [i for p in pieces for i in p.events.ids] == whole.events.ids.tolist()
    assert [i for p in pieces for i in p.label_ids] == whole.label_ids
    n = m = 0
    for piece, low, high in zip(pieces, [-1, *places], [*places, 10**9], strict=True):
        for at in (*piece.event_positions, *piece.label_positions):
            assert low <= at < high
        for i in range(len(piece.events)):
            assert piece.event_place(i) == whole.event_place(n + i)
        for i in range(len(piece.label_ids)):
            assert piece.label_place(i) == whole.label_place(m + i)
        n, m = n + len(piece.events), m + len(piece.label_ids)


@given(
    lanes=st.lists(st.lists(st.integers(0, 30), max_size=25).map(sorted), min_size=1, max_size=4),
    limit=st.integers(1, 9),
)
@settings(max_examples=200, deadline=None)
def test_turns_that_a_reader_makes_follow_one_merged_order(lanes: list[list[int]], limit: int) -> None:
    """Where everything is there already, however few records a read takes."""
    model = config()
    log = MemoryLog()
    log.create(EVENTS, len(lanes))
    log.create(LABELS)
    rows: dict[Lane, list[Rec]] = {}
    for partition, times in enumerate(lanes):
        lane = Lane(LABELS, 0) if partition == 3 else Lane(EVENTS, partition)
        for i, at in enumerate(times):
            name = f"{partition}-{i}"
            record = (
                label(name, True, i, at=at) if partition == 3 else event(name, i, i, at=at, lane=partition)
            )
            rows.setdefault(lane, []).append(record)
            log.append(lane.topic, [OutRecord(record.value, None, at, partition=lane.partition)])
    offsets = {lane: 0 for topic in (EVENTS, LABELS) for lane in log.lanes(topic)}
    reader = LaneReader(log, model, limit)
    got: list[str] = []
    while sources := reader.read(offsets, 0.0):
        for lane, source in sources.items():
            assert source.records.offsets.tolist()[0] == offsets[lane]
            offsets[lane] = source.records.next_offset
        turn = merge(Turn(1, {}, 0), sources, nothing=Fold(model).nothing, labels_apart=True)
        placed = dict(zip(turn.event_positions.tolist(), turn.events.ids.tolist(), strict=True))
        placed |= dict(zip(turn.label_positions.tolist(), turn.label_ids, strict=True))
        got += [placed[p] for p in sorted(placed)]
    want = [f"{3 if lane.topic == LABELS else lane.partition}-{row}" for lane, row, _ in by_heads(rows)]
    assert sorted(got) == sorted(want)
    times = {f"{p}-{i}": at for p, lane in enumerate(lanes) for i, at in enumerate(lane)}
    assert [times[name] for name in got] == sorted(times[name] for name in got)
