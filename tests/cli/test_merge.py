"""Events and labels in the order of River's delayed evaluation."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from river.stream import simulate_qa

from cli.files.merge import LabelMerger, Labels

Happening = tuple[str, int]


def rivers_order(times: list[int], delays: list[int]) -> list[Happening]:
    start = dt.datetime(2024, 1, 1)
    rows = [({"at": start + dt.timedelta(seconds=t), "row": i}, i) for i, t in enumerate(times)]

    def delay(x: dict[str, Any], _: Any) -> dt.timedelta:
        return dt.timedelta(seconds=delays[x["row"]])

    return [("event" if y is None else "label", i) for i, _, y in simulate_qa(rows, "at", delay)]


def labels_of(times: np.ndarray, delays: np.ndarray, start: int, stop: int) -> Labels:
    rows = np.arange(start, stop, dtype=np.int64)
    return Labels(times[start:stop] + delays[start:stop], rows, np.empty((stop - start, 3), object))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=40),
    st.lists(st.integers(0, 40), max_size=5),
)
def test_the_order_is_rivers_however_the_rows_are_cut(rows: list[tuple[int, int]], cuts: list[int]) -> None:
    times = np.cumsum([gap for gap, _ in rows], dtype=np.int64)
    delays = np.array([delay for _, delay in rows], dtype=np.int64)
    merger = LabelMerger()
    order: list[Happening] = []
    bounds = sorted({0, len(rows), *(min(c, len(rows)) for c in cuts)})
    for start, stop in pairwise(bounds):
        merged, coming = merger.push(times[start:stop], labels_of(times, delays, start, stop))
        events, known = iter(range(start, stop)), iter(coming.event.tolist())
        order += [("label", next(known)) if is_label else ("event", next(events)) for is_label in merged]
        assert next(events, None) is None
        assert next(known, None) is None
    for left in merger.rest(3):
        assert len(left) <= 3
        order += [("label", i) for i in left.event.tolist()]
    # River keeps labels of one time that come after the last event in its queue's order, which is ours.
    assert order == rivers_order(times.tolist(), delays.tolist())


def test_a_label_comes_before_an_event_of_its_time_and_after_its_own() -> None:
    times = np.array([0, 5, 5, 5, 9], dtype=np.int64)
    delays = np.array([5, 0, 4, 4, 0], dtype=np.int64)
    merger = LabelMerger()
    merged, coming = merger.push(times, labels_of(times, delays, 0, 5))
    assert merged.tolist() == [False, True, False, True, False, False, True, True, False]
    assert coming.event.tolist() == [0, 1, 2, 3]
    assert [left.event.tolist() for left in merger.rest(10)] == [[4]]
    assert list(merger.rest(10)) == []
