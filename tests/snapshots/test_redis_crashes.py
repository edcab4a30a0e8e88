"""A publisher that dies after any of its commands, answers that get lost, and servers that forget."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from core.errors import Conflict, StoreUnavailable
from core.records import Turn
from snapshots.open_store import open_store
from tests.snapshots.store_harness import KEYS, M, check_versions, owned, snapshot


@pytest.mark.parametrize("fault", [RuntimeError("died"), redis.ConnectionError("cut")], ids=["death", "cut"])
def test_a_publisher_may_die_after_any_command(
    raw: redis.Redis, redis_url: str, cut_after: Any, fault: Exception
) -> None:
    completed = False
    for k in range(60):
        raw.flushall()
        store = open_store(redis_url)
        epoch = owned(store)
        store.snapshots.publish(snapshot("one"), epoch)
        with cut_after(k, fault) as count:
            try:
                store.snapshots.publish(snapshot("two"), epoch)
                completed = True
            except (RuntimeError, StoreUnavailable):
                pass
        if completed:
            assert count[0] == k
            break
        check_versions(store, ["one"])
        assert store.snapshots.publish(snapshot("two"), epoch) == 2
        check_versions(store, ["one", "two"])
        store.snapshots.prune(M, 1, epoch)
        assert raw.scard(KEYS.blobs) == 2 == len(raw.keys(KEYS.blob("*")))
        assert raw.keys(KEYS.staged + "*") == []
        store.close()
    assert completed
    assert k > 8


def test_a_publisher_may_lose_any_answer(raw: redis.Redis, redis_url: str, lose_answer: Any) -> None:
    outcomes = []
    for k in range(60):
        raw.flushall()
        store = open_store(redis_url)
        epoch = owned(store)
        store.snapshots.publish(snapshot("one"), epoch)
        with lose_answer(k):
            try:
                store.snapshots.publish(snapshot("two"), epoch)
                outcomes.append("done")
            except StoreUnavailable:
                outcomes.append("unknown")
        check_versions(store, ["one", "two"][: len(store.snapshots.versions(M))])
        version = store.snapshots.publish(snapshot("three"), epoch)
        assert store.snapshots.load(M, version).manifest["note"] == "three"
        store.close()
        if outcomes[-1] == "done":
            break
    assert outcomes[-1] == "done"
    assert len(outcomes) > 8


def test_an_append_whose_answer_was_lost_is_journaled_once(
    raw: redis.Redis, redis_url: str, lose_answer: Any
) -> None:
    store = open_store(redis_url)
    epoch = owned(store)
    for n in range(1, 30):
        with lose_answer(n % 12):
            try:
                store.journal.append(M, Turn(n, {}, n), epoch)
            except StoreUnavailable:
                pass
            else:
                continue
        store.journal.append(M, Turn(n, {}, n), epoch)
    assert [t.number for t in store.journal.read(M, 0)] == list(range(1, 30))
    with lose_answer(0), pytest.raises(StoreUnavailable):
        store.journal.append(M, Turn(30, {}, 30), epoch)
    with pytest.raises(Conflict):  # the same number, but another turn
        store.journal.append(M, Turn(30, {}, 31), epoch)
    store.close()


def test_a_journal_that_lost_its_tail_in_a_restart_refuses_a_gap(own_server: Any) -> None:
    own_server.start()
    store = open_store(own_server.url)
    epoch = owned(store)
    for n in (1, 2):
        store.journal.append(M, Turn(n, {}, n), epoch)
    with redis.Redis.from_url(own_server.url) as raw:
        raw.save()
    store.journal.append(M, Turn(3, {}, 3), epoch)
    own_server.stop()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.journal.append(M, Turn(4, {}, 4), epoch)
    own_server.start()
    with pytest.raises(Conflict, match="turn 4 does not follow turn 2"):
        store.journal.append(M, Turn(4, {}, 4), epoch)
    store.journal.append(M, Turn(3, {}, 3), epoch)
    own_server.stop()
    own_server.start()  # between two appends nobody noticed: the connection tells
    with pytest.raises(Conflict, match="turn 4 does not follow turn 2"):
        store.journal.append(M, Turn(4, {}, 4), epoch)
    store.close()
