"""The fold against its definition, one record at a time: any records, cut into turns anywhere."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import ModelConfig
from core.records import Lane
from snapshots.codec import encode
from stream.fold.fold import Fold
from tests.stream.fold_harness import (
    EVENTS,
    LABELS,
    Feed,
    Rec,
    config,
    cut,
    event,
    label,
    learned,
    lost,
    parts_bytes,
    tombstone,
)
from tests.stream.naive_fold import JUNK, NaiveFold

NAMES = st.sampled_from("abcdefgh")
TIMES = st.integers(0, 12)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "binary": st.booleans(),
    "multiclass": st.sampled_from(["u", "v", "w", "z"]),
    "regression": st.sampled_from([-1.5, 0.0, 0.25, 3.0]),
}
BAD = st.sampled_from([b"\xff", b"{", b"[]", b'{"id":"a","ts":1,"features":{"x":"no"},"label":{}}'])


@st.composite
def streams(draw: st.DrawFn, task: str, carried: bool) -> list[Rec]:
    """Records in the order of the log: its timestamps grow, the times in the records do not."""
    truth = VALUES[task]
    kinds = ["event"] * 4 + (["bare"] if carried else ["label"] * 4) + ["tombstone", "junk"]
    records = []
    for at, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=40))):
        lane, name, ts = draw(st.integers(0, 2)), draw(NAMES), draw(TIMES)
        if kind == "event" or kind == "bare":
            x = draw(st.sampled_from([-2.0, 0.5, 1.0, 7.0]))
            more = {"label": draw(truth)} if carried and kind == "event" else {}
            records.append(event(name, x, ts, at=at, lane=lane, **more))
        elif kind == "label":
            records.append(label(name, draw(truth), ts, at=at, lane=lane))
        elif kind == "tombstone":
            topic = EVENTS if carried else draw(st.sampled_from([EVENTS, LABELS]))
            records.append(tombstone(name, at, topic=topic, lane=lane))
        else:
            topic = EVENTS if carried else draw(st.sampled_from([EVENTS, LABELS]))
            records.append(Rec(Lane(topic, lane), draw(BAD), at, JUNK))
    return records


CUTS = st.lists(st.integers(0, 40), max_size=6)


def model(task: str, carried: bool, window: int, **join: Any) -> ModelConfig:
    more = {"max_classes": 3} if task == "multiclass" else {}
    return config(
        task=task, carried=carried, window={"count": window}, join={"expire_after": 10**12, **join}, **more
    )


def same(feed: Feed, naive: NaiveFold, said: list[tuple[str, list[float]]]) -> None:
    fold = feed.fold
    assert [name for name, _ in said] == [name for name, _ in naive.predicted]
    for (_, got), (_, want) in zip(said, naive.predicted, strict=True):
        width = max(len(got), len(want))  # classes that the turn brought later have score 0
        assert padded(got, width) == padded(want, width)
    assert learned(fold) == naive.learned
    assert [fold.events, fold.labels, fold.unlabelled] == [naive.events, naive.labels, naive.unlabelled]
    assert fold.examples == len(naive.scored)
    assert sum(fold.dead_letters.values()) == naive.bad["bad"]
    assert told(fold.join.counts, naive) == told(naive.counts, naive)
    assert fold.classes.values == naive.classes
    assert list(fold.join._waiting) == list(naive.waiting)
    assert fold.join._early == naive.early
    assert len(fold.pending) == len(naive.waiting) + len(naive.window)
    assert encode(fold.contest.champion.learner.state()) == encode(naive.learner.state())
    scores(fold, naive)
    assert lost(fold) == (0, 0)


def told(counts: Counter[str], naive: NaiveFold) -> Counter[str]:
    """The counts. Another label beside one that came too late is a late one, or a duplicate where both came
    in one turn: that is left open."""
    kinds = ("late_label", "duplicate_label", "conflicting_label")
    if not naive.counts["late_label"]:
        return +counts
    return +Counter({**counts, **dict.fromkeys(kinds, 0), "more_labels": sum(counts[k] for k in kinds)})


def padded(row: list[float], width: int) -> list[float]:
    return row + [0.0] * (width - len(row))


def scores(fold: Fold, naive: NaiveFold) -> None:
    """Metrics and baselines, from the definition."""
    n = len(naive.scored)
    report, base = fold.contest.served.report(), fold.baselines.report()
    if n == 0:
        assert report["mae" if naive.regression else "accuracy"] is None
        return
    if naive.regression:
        errors = [abs(said[0] - y) for said, y in naive.scored]
        assert report["mae"] == pytest.approx(np.mean(errors))
        for name, column in (("no_change", 0), ("mean", 1)):
            told = [abs(row[column] - row[2]) for row in naive.baseline if row[column] is not None]
            assert base[name] == (pytest.approx(np.mean(told)) if told else None)
        return
    hits = [any(said) and int(np.argmax(said)) == y for said, y in naive.scored]
    assert report["accuracy"] == pytest.approx(np.mean(hits))
    p = [said[int(y)] if y < len(said) else 0.0 for said, y in naive.scored]
    assert report["log_loss"] == pytest.approx(-np.mean([math.log(min(max(v, 1e-15), 1 - 1e-15)) for v in p]))
    for name, column in (("no_change", 0), ("majority", 1)):
        assert base[name] == pytest.approx(np.mean([row[column] == row[2] for row in naive.baseline]))


def compare(task: ModelConfig, records: list[Rec], cuts: list[int], now_ms: int = 10**12) -> Feed:
    feed, naive = Feed(task), NaiveFold(task)
    said: list[tuple[str, list[float]]] = []
    for turn in cut(records, cuts):
        for predicted in feed.turn(turn, now_ms).predicted:
            said += zip(predicted.events.ids.tolist(), predicted.scores.tolist(), strict=True)
        naive.turn(turn, now_ms)
        same(feed, naive, said)
    return feed


TASKS = ["binary", "multiclass", "regression"]


@pytest.mark.parametrize("carried", [False, True], ids=["apart", "carried"])
@pytest.mark.parametrize("task", TASKS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_turns_do_what_one_record_at_a_time_does(task: str, carried: bool, data: st.DataObject) -> None:
    records = data.draw(streams(task, carried))
    chosen = model(task, carried, data.draw(st.integers(1, 5)))
    once = compare(chosen, records, data.draw(CUTS))
    again = compare(chosen, records, data.draw(CUTS))
    # Where the turns are cut changes nothing, to the bit, but for the order of sums in scores.
    a, b = once.fold.parts(), again.fold.parts()
    for fold in (a["fold"], b["fold"]):
        if not fold["pending"]["ids"]:
            fold["pending"]["scores"] = {}  # whether there ever were any
        fold["buffer"]["rows"]["n_classes"] = 0  # those known by the end of the turn that came last
    for name in ("window", "classes", "pending", "rng", "buffer"):
        assert encode({"": a["fold"][name]}) == encode({"": b["fold"][name]}), name
    assert {n: encode(s) for n, s in a.items() if n != "fold"} == {
        n: encode(s) for n, s in b.items() if n != "fold"
    }


@pytest.mark.parametrize(("task", "on_expiry"), [*((task, "drop") for task in TASKS), ("binary", "negative")])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_expiry_by_age_and_number(task: str, on_expiry: str, data: st.DataObject) -> None:
    records = data.draw(streams(task, carried=False))
    if on_expiry == "negative":  # when within a turn a late negative is learned is left open
        records = [record for record in records if record.value is not None]
    limits = {
        "expire_after": data.draw(st.integers(1, 6)),
        "capacity": data.draw(st.integers(1, 4)),
        "max_ahead": 2,
        "on_expiry": on_expiry,
    }
    chosen = model(task, False, data.draw(st.integers(1, 3)), **limits)
    feed = compare(chosen, records, data.draw(CUTS), now_ms=data.draw(st.integers(0, 12)))
    join = feed.fold.join
    assert join.waiting() <= limits["capacity"]
    assert join.early() <= limits["capacity"]


@pytest.mark.parametrize("carried", [False, True], ids=["apart", "carried"])
@pytest.mark.parametrize("task", TASKS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_fold_made_from_its_bytes_goes_on_alike(task: str, carried: bool, data: st.DataObject) -> None:
    records = data.draw(streams(task, carried))
    join = {} if carried else {"expire_after": data.draw(st.integers(1, 12)), "capacity": 4}
    chosen = model(task, carried, data.draw(st.integers(1, 5)), **join)
    whole, restarted = Feed(chosen), Feed(chosen)
    for turn in cut(records, data.draw(CUTS)):
        whole.turn(turn, 12)
        restarted.turn(turn, 12)
        restarted.restart()
        assert parts_bytes(restarted.fold) == parts_bytes(whole.fold)
