"""What goes wrong in streams, and what the fold makes of it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from core.records import Lane
from snapshots.codec import encode
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

HOUR = 3_600_000
NOW = 1_700_000_000_000
YEAR_2099 = 4_070_908_800_000


def test_a_delivery_thrice_leaves_the_same_learner() -> None:
    rows = [r for i in range(30) for r in (event(f"n{i}", i % 7, i), label(f"n{i}", i % 2 == 0, i))]
    once, thrice = Feed(config()), Feed(config())
    once.turn(rows)
    for turn in cut(rows * 3, range(7, 180, 7)):
        thrice.turn(turn)
    assert learned(thrice.fold) == learned(once.fold)
    assert encode(thrice.fold.contest.champion.learner.state()) == encode(
        once.fold.contest.champion.learner.state()
    )
    assert +thrice.fold.join.counts == {"duplicate_event": 60, "duplicate_label": 60}


@pytest.mark.parametrize("carried", [False, True], ids=["apart", "carried"])
def test_windows_by_count_do_not_ask_for_the_order_of_times(carried: bool) -> None:
    rng = np.random.default_rng(3)
    want: list[tuple[str, float]] | None = None
    for _ in range(100):
        times = rng.permutation(12)
        rows = []
        for i, ts in enumerate(times.tolist()):
            own = {"label": i % 3 == 0} if carried else {}
            rows.append(event(f"n{i}", i, ts, at=2 * i, **own))
            if not carried:
                rows.append(label(f"n{i}", i % 3 == 0, ts, at=2 * i + 1))
        feed = Feed(config(carried=carried, window={"count": 4}))
        for turn in cut(rows, rng.integers(1, 24, 3).tolist()):
            feed.turn(turn)
        want = want or learned(feed.fold)
        assert learned(feed.fold) == want
    assert want is not None
    assert len(want) == 12


def test_poison_among_good_records() -> None:
    rows = [event(f"n{i}", i, i, label=i % 2 == 0) for i in range(100)]
    rows.insert(41, Rec(Lane(EVENTS, 0), b"\xff", 41))
    feed = Feed(config(carried=True))
    effects = feed.turn(rows)
    assert [(str(place.lane), place.offset, error.reason) for place, error in effects.dead_letters] == [
        ("e/0", 41, "not_utf8")
    ]
    assert feed.fold.examples == 100
    assert feed.fold.dead_letters == {"not_utf8": 1}


@pytest.mark.parametrize("topic", [EVENTS, LABELS])
@pytest.mark.parametrize("together", [True, False], ids=["one turn", "two turns"])
def test_a_tombstone_forgets_what_came_before_it(topic: str, together: bool) -> None:
    rows = [
        event("who-a", 1.0, 1),
        event("who-b", 2.0, 2),
        label("who-early", True, 3),
        event("who-open", 1.0, 4),
        label("who-open", True, 5),
        event("who-kept", 1.0, 6),
        *(tombstone(name, 10, topic=topic) for name in ("who-a", "who-early", "who-open", "nobody")),
    ]
    feed = Feed(config(window={"count": 3}))
    for turn in [rows] if together else [rows[:6], rows[6:]]:
        feed.turn(turn)
    fold = feed.fold
    everything = b"".join(parts_bytes(fold).values())
    for name in (b"\xa1a", b"who-early", b"who-open"):
        assert name not in everything
    assert list(fold.join._waiting) == ["who-b", "who-kept"]
    assert len(fold.window.open) == 0
    assert fold.join.counts["forgotten"] == 4
    again = [
        event("who-a", 1.0, 11),
        label("who-a", False, 12),
        label("who-b", True, 13),
        label("who-kept", True, 14),
    ]
    feed.turn([r for r in again if r.at_ms])
    assert learned(fold) == [("who-a", 0), ("who-b", 1), ("who-kept", 1)]


def test_a_tombstone_empties_the_replay_buffer_of_its_id() -> None:
    feed = Feed(config(carried=True))
    feed.turn([event(f"n{i}", i, i, label=True) for i in range(6)])
    feed.turn([tombstone("n3", 7), tombstone("n0", 8)])
    assert [name for name, _ in learned(feed.fold)] == ["n1", "n2", "n4", "n5"]


def test_many_tombstones_amid_their_own_events() -> None:
    rows = [r for i in range(300) for r in (event(f"n{i}", 1.0, i), tombstone(f"n{i}", i))]
    feed = Feed(config())
    feed.turn(rows)
    assert feed.fold.join.waiting() == 0
    assert feed.fold.join.counts["forgotten_event"] == 300
    assert lost(feed.fold) == (0, 0)


@pytest.mark.parametrize(("late_ms", "examples"), [(-1, 1), (0, 1), (1, 0)])
@pytest.mark.parametrize("order", ["event first", "label first", "two turns", "label a turn before"])
def test_the_grace_ends_to_the_millisecond(late_ms: int, examples: int, order: str) -> None:
    feed = Feed(config(join={"expire_after": 1_000}))
    first, second = event("a", 1.0, 5_000, at=1), label("a", True, 6_000 + late_ms, at=2)
    if order.startswith("label"):
        first, second = second, first
    for turn in [[first], [second]] if "turn" in order else [[first, second]]:
        feed.turn(turn)
    assert feed.fold.learned == feed.fold.examples == examples
    assert feed.fold.join.counts["late_label"] == 1 - examples
    assert lost(feed.fold) == (0, 0)


def test_ten_thousand_orphans_are_bounded() -> None:
    feed = Feed(config(join={"capacity": 500, "expire_after": 10**12}))
    for turn in range(20):
        feed.turn([label(f"o{turn}-{i}", True, turn) for i in range(500)])
        assert feed.fold.join.early() <= 500
    fold = feed.fold
    assert fold.labels == 10_000
    assert fold.join.counts["evicted_label"] == 10_000 - fold.join.early()
    assert lost(fold) == (0, 0)


def test_events_that_never_get_a_label_are_bounded() -> None:
    capacity, n, turns = 10_000, 5_000, 60
    feed = Feed(config(join={"capacity": capacity, "expire_after": 10**12, "remember": 2_000}))
    rows = [b'{"id":"%d","ts":%d,"features":{"x":1.0}}' % (i, i) for i in range(n * turns)]
    sizes = []
    for turn in range(turns):
        chunk = rows[turn * n : (turn + 1) * n]
        feed.turn([Rec(Lane(EVENTS, 0), value, turn) for value in chunk])
        fold = feed.fold
        assert fold.join.waiting() <= capacity
        assert len(fold.pending) == fold.join.waiting()
        sizes.append((len(fold.pending.ids), len(fold.join._done)))
    assert max(slots for slots, _ in sizes) <= 4 * (capacity + n)
    assert max(done for _, done in sizes) <= 2 * (2_000 + capacity)
    assert fold.events == n * turns
    assert fold.join.counts["evicted_event"] == n * turns - fold.join.waiting()
    assert fold.learned == 0
    assert lost(fold) == (0, 0)


@pytest.mark.parametrize("first", [False, True])
def test_of_two_labels_that_differ_the_first_is_learned(first: bool) -> None:
    for turns in itertools.product([0, 1], repeat=2):
        rows = [event("a", 1.0, 1), label("a", first, 2), label("a", not first, 3)]
        feed = Feed(config())
        for turn in cut(rows, [i + 1 for i, ends in enumerate(turns) if ends]):
            feed.turn(turn)
        assert learned(feed.fold) == [("a", int(first))]
        assert +feed.fold.join.counts == {"conflicting_label": 1}


def test_bad_numbers_and_labels_never_reach_the_learner() -> None:
    def rows(bad: list[bytes]) -> list[Rec]:
        made = []
        for i in range(600):
            if i == 200:
                made += [Rec(Lane(EVENTS, 0), value, i) for value in bad]
            made.append(event(f"n{i}", (i % 13) - 6.0, i, label=i % 3 == 0))
        return made

    template = b'{"id":"%s","ts":1,"features":{"x":%s},"label":%s}'
    wrong = [
        (b"NaN", b"true"),
        (b"1e999", b"true"),
        (b"-1e308", b"true"),
        (b'"7"', b"true"),
        (b"null", b"true"),
    ]
    wrong += [(b"1.0", value) for value in (b'"True"', b'"1"', b"1", b"NaN", b"0.5", b"[]")]
    bad = [template % (b"b%d" % i, x, y) for i, (x, y) in enumerate(wrong)]
    clean, dirty = Feed(config(carried=True)), Feed(config(carried=True))
    clean.turn(rows([]))
    for turn in cut(rows(bad), range(50, 600, 50)):
        dirty.turn(turn)
    assert sum(dirty.fold.dead_letters.values()) == len(bad)
    assert encode(dirty.fold.contest.champion.learner.state()) == encode(
        clean.fold.contest.champion.learner.state()
    )
    scores = [p.scores for p in dirty.turn([event("last", 1.0, 999)]).predicted]
    assert np.isfinite(np.concatenate(scores)).all()


def test_shuffled_keys_and_unknown_features() -> None:
    feeds = [Feed(config(carried=True)) for _ in range(2)]
    for feed, value in zip(
        feeds,
        [
            b'{"id":"a","ts":1,"features":{"x":2.0},"label":true}',
            b'{"label":true,"more":[1],"features":{"y":9,"x":2.0},"ts":1,"id":"a"}',
        ],
        strict=True,
    ):
        feed.turn([Rec(Lane(EVENTS, 0), value, 1)])
        feed.turn([Rec(Lane(EVENTS, 0), b'{"id":"b","ts":1,"features":{"z":2.0},"label":true}', 2)])
        assert feed.fold.dead_letters == {"missing_field": 1}
    assert parts_bytes(feeds[0].fold) == parts_bytes(feeds[1].fold)


@pytest.mark.parametrize("window", [1, 3])
def test_a_class_that_comes_late(window: int) -> None:
    feed = Feed(config(carried=True, task="multiclass", max_classes=3, window={"count": window}))
    names = ["red", "blue"]
    for start in range(0, 600, 50):
        rows = [event(f"n{i}", i % 5, i, label=names[i % 2]) for i in range(start, start + 50)]
        if start == 500:
            rows += [event("new", 1.0, 550, label="green"), event("more", 1.0, 551, label="black")]
        effects = feed.turn(rows)
        told = [error.reason for _, error in effects.dead_letters]
        assert told == (["class_limit"] if start == 500 else [])
    fold = feed.fold
    assert fold.classes.values == ["red", "blue", "green"]
    assert fold.examples == 601
    scores = feed.turn([event("last", 1.0, 999, label="red")]).predicted[0].scores
    assert scores.shape == (1, 3)
    assert scores.sum() == pytest.approx(1.0)
    feed.restart()
    assert feed.fold.classes.values == ["red", "blue", "green"]


def test_events_before_the_first_class() -> None:
    feed = Feed(config(task="multiclass", window={"count": 2}))
    feed.turn([event(f"n{i}", i, i) for i in range(5)])
    feed.restart()
    feed.turn([label("n1", "u", 6), label("n3", "v", 7), label("n0", "u", 8), event("n9", 1.0, 9)])
    feed.restart()
    feed.turn([label("n9", "v", 10), label("n2", "u", 11)])
    assert learned(feed.fold) == [("n1", 0), ("n3", 1), ("n0", 0), ("n9", 1)]
    assert feed.fold.contest.served.report()["accuracy"] is not None


@pytest.mark.parametrize("kind", ["event", "label"])
def test_a_record_of_the_year_2099_expires_nobody(kind: str) -> None:
    hour = {"expire_after": 10 * 60_000, "max_ahead": HOUR}
    feed = Feed(config(join=hour, window={"count": 2}))
    feed.turn([event(f"n{i}", 1.0, NOW + i) for i in range(3)], NOW)
    future = event("f", 1.0, YEAR_2099, at=NOW) if kind == "event" else label("f", True, YEAR_2099, at=NOW)
    feed.turn([future], NOW + 10)
    feed.turn([label(f"n{i}", True, NOW + 20) for i in range(3)], NOW + 20)
    assert feed.fold.examples == 3
    assert feed.fold.learned == 2
    assert feed.fold.join.watermark_ms <= NOW + HOUR
    assert not feed.fold.join.counts["expired_event"]
    feed.turn([label("f", True, NOW + 30)] if kind == "event" else [], NOW + 30)
    assert feed.fold.trained_through_ms < NOW + HOUR


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_enormous_labels_and_errors_leave_finite_numbers(task: str) -> None:
    feed: Any = Feed(config(carried=True, task=task))
    values = [True, False] if task == "binary" else [1.0, -1e30, 1e30, 2.5]
    for start in range(0, 400, 100):
        feed.turn(
            [
                event(f"n{i}", (i % 9) * 1e29, i, label=values[i % len(values)])
                for i in range(start, start + 100)
            ]
        )
    report = feed.fold.contest.served.report()
    assert all(value is None or np.isfinite(value) for value in report.values())
    feed.restart()
