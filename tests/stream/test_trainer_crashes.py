"""A trainer that dies at any call into the log or the store, and the one that takes over."""

from __future__ import annotations

import pytest

from core.errors import StaleEpoch
from core.records import Lane
from snapshots.open_store import open_store
from stream.log.memory_log import MemoryLog
from stream.log.open_log import open_log
from tests.stream.fold_harness import Rec, parts_bytes
from tests.stream.trainer_harness import MODEL, Bench, Life, Watch, essence, fill, once, small_config, traffic

ROWS = traffic(60)
BAD = {(r.lane, r.value) for r in ROWS if r.value is not None and r.value.startswith(b"\xff")}


def in_memory(rows: list[Rec] = ROWS) -> Bench:
    bench = Bench(MemoryLog(), open_store("memory://"), small_config())
    fill(bench.log, rows)
    return bench


@pytest.fixture(scope="module")
def undisturbed() -> Bench:
    bench = in_memory()
    bench.train()
    return bench


def calls() -> int:
    life = Life()
    in_memory().train(life)
    return life.calls


def check(bench: Bench, undisturbed: Bench, last: Watch) -> None:
    fold = bench.rebuilt()
    assert parts_bytes(fold) == parts_bytes(bench.from_the_log())
    if last.fold is not None:
        assert parts_bytes(fold) == parts_bytes(last.fold)
    assert essence(fold) == essence(undisturbed.rebuilt())
    newest = bench.store.snapshots.versions(MODEL)[-1]
    assert bench.store.snapshots.load(MODEL, newest, ()).manifest["turn"] == fold.turn
    champion = bench.store.snapshots.rollout(MODEL).champion
    assert champion is not None
    assert champion.version == newest
    letters = once(bench.out("deadletter"))
    places = {
        (Lane(h["riverrun-topic"].decode(), int(h["riverrun-partition"])), value) for value, h in letters
    }
    assert places == BAD
    assert len(letters) == len(BAD)
    want = sorted(value or b"" for value, _ in once(undisturbed.out("predictions")))
    assert sorted(value or b"" for value, _ in once(bench.out("predictions"))) == want


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_death_at_any_call_costs_nothing(undisturbed: Bench, after: bool) -> None:
    for dies_at in range(1, calls() + 1, 2 if after else 1):
        bench = in_memory()
        bench.train(Life(dies_at, after=after))
        check(bench, undisturbed, bench.train())


def test_many_deaths_in_a_row_cost_nothing(undisturbed: Bench) -> None:
    bench = in_memory()
    for dies_at in (9, 14, 20, 27, 33, 21, 40):
        bench.train(Life(dies_at, after=dies_at % 2 == 0))
    check(bench, undisturbed, bench.train())


@pytest.mark.redis
def test_deaths_over_redis_cost_nothing(undisturbed: Bench, redis_url: str) -> None:
    for dies_at in range(5, 60, 9):
        log, store = open_log(redis_url), open_store(redis_url)
        bench = Bench(log, store, small_config())
        if dies_at == 5:
            fill(log, ROWS)
        bench.train(Life(dies_at, after=dies_at % 2 == 0))
        log.close()
        store.close()
    bench = Bench(open_log(redis_url), open_store(redis_url), small_config())
    check(bench, undisturbed, bench.train())
    bench.log.close()
    bench.store.close()


def test_a_trainer_that_was_replaced_stops_at_its_next_write(undisturbed: Bench) -> None:
    bench = in_memory()
    other = in_memory([])
    other.log, other.store = bench.log, bench.store
    watch = Watch()
    turns = 0

    def replaced(fold: object) -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            other.train()

    watch.on_step = replaced
    with pytest.raises(StaleEpoch, match=MODEL):
        bench.train(watch=watch)
    assert turns == 2
    check(bench, undisturbed, bench.train())
