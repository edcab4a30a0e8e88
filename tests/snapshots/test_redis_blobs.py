"""What lies in Redis: damage is found, equal parts are kept once, and what nobody names goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import redis

from core.clock import SystemClock
from core.errors import CorruptSnapshot, StoreError
from core.records import Turn
from core.rollout import Assignment, Rollout
from snapshots.codec import encode
from snapshots.open_store import Store, open_store
from tests.snapshots.store_harness import KEYS, M, owned, snapshot


def test_every_damage_to_a_blob_is_found(redis_store: Store, raw: redis.Redis) -> None:
    epoch = owned(redis_store)
    redis_store.snapshots.publish(snapshot("one"), epoch)
    redis_store.snapshots.publish(snapshot("two"), epoch)
    part = redis_store.snapshots.load(M, 2).manifest["parts"]["fold"]
    key = KEYS.blob(part["sha256"])
    good = raw.get(key)
    rng = np.random.default_rng(5)
    for bit in rng.integers(0, 8 * len(good), 200):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << (bit % 8)
        raw.set(key, bytes(bad))
        with pytest.raises(CorruptSnapshot, match="'fold' of flights version 2"):
            redis_store.snapshots.load(M, 2)
    for bad_value in (good[:-1], good + b"x", b""):
        raw.set(key, bad_value)
        with pytest.raises(CorruptSnapshot):
            redis_store.snapshots.load(M, 2)
    raw.delete(key)
    with pytest.raises(CorruptSnapshot, match="missing"):
        redis_store.snapshots.load(M, 2)
    assert redis_store.snapshots.load(M, 1).manifest["note"] == "one"
    assert redis_store.snapshots.load(M, 2, ["same"]).parts == {"same": b"same" * 10}
    raw.set(key, good[:-1])  # publishing the same bytes again mends what has another size
    redis_store.snapshots.publish(snapshot("two"), epoch)
    assert redis_store.snapshots.load(M, 2).parts["fold"] == good


def test_a_damaged_or_swapped_manifest_is_found(redis_store: Store, raw: redis.Redis) -> None:
    epoch = owned(redis_store)
    for text in ("one", "two"):
        redis_store.snapshots.publish(snapshot(text), epoch)
    one, two = raw.get(KEYS.manifest(1)), raw.get(KEYS.manifest(2))
    for at in range(0, len(two), 7):
        bad = bytearray(two)
        bad[at] ^= 4
        raw.set(KEYS.manifest(2), bytes(bad))
        with pytest.raises(CorruptSnapshot):
            redis_store.snapshots.load(M, 2)
    raw.set(KEYS.manifest(2), one)
    with pytest.raises(CorruptSnapshot, match="version 1"):
        redis_store.snapshots.load(M, 2)
    # A version that nobody can read does not stop the pruning of others, nor what is served.
    redis_store.snapshots.set_rollout(M, Rollout(1, Assignment("a", 1)), Rollout(), epoch)
    assert redis_store.snapshots.prune(M, 5, epoch) == 1
    assert list(redis_store.snapshots.versions(M)) == [1]
    raw.set(KEYS.manifest(1), b"x")
    with pytest.raises(CorruptSnapshot):
        redis_store.snapshots.prune(M, 5, epoch)


@pytest.mark.parametrize(
    ("key", "call"),
    [
        (KEYS.current, lambda s, e: s.snapshots.publish(snapshot("x"), e)),
        (KEYS.epoch, lambda s, e: s.snapshots.publish(snapshot("x"), e)),
        (KEYS.lease, lambda s, _: s.ownership.owner(M)),
        (KEYS.rollout, lambda s, _: s.snapshots.rollout(M)),
    ],
)
def test_nonsense_in_small_keys_is_refused(
    redis_store: Store, raw: redis.Redis, key: str, call: Callable[[Store, int], Any]
) -> None:
    epoch = owned(redis_store)
    for nonsense in (b"what is this", encode({"revision": "x"})):
        raw.set(key, nonsense)
        with pytest.raises(CorruptSnapshot):
            call(redis_store, epoch)
    raw.delete(key)
    raw.lpush(key, "a list")
    with pytest.raises(StoreError):
        call(redis_store, epoch)


def test_equal_parts_are_kept_once_and_go_with_their_last_user(redis_store: Store, raw: redis.Redis) -> None:
    epoch = owned(redis_store)
    for text in ("one", "two", "three"):
        redis_store.snapshots.publish(snapshot(text), epoch)
    assert raw.scard(KEYS.blobs) == 4
    raw.sadd(KEYS.blobs, "left", "never written")
    raw.set(KEYS.blob("left"), "over from some crash")
    raw.sadd(KEYS.staged, f"{epoch - 1}:left", f"{epoch + 1}:other")
    raw.set(KEYS.staged_blob(epoch - 1, "left"), "over from a crash")
    raw.set(KEYS.staged_blob(epoch + 1, "other"), "in use by the next owner")
    assert redis_store.snapshots.prune(M, 1, epoch) == 2
    blobs = {k.decode().rpartition(":")[2] for k in raw.keys(KEYS.blob("*"))}
    assert blobs == {p["sha256"] for p in redis_store.snapshots.load(M, 3).manifest["parts"].values()}
    assert {b.decode() for b in raw.smembers(KEYS.blobs)} == blobs
    assert [k.decode() for k in raw.keys(KEYS.staged + ":*")] == [KEYS.staged_blob(epoch + 1, "other")]
    assert raw.smembers(KEYS.staged) == {f"{epoch + 1}:other".encode()}


def test_all_keys_of_a_model_share_a_slot(redis_store: Store, raw: redis.Redis) -> None:
    epoch = owned(redis_store)
    redis_store.snapshots.publish(snapshot("one"), epoch)
    redis_store.snapshots.set_rollout(M, Rollout(1, Assignment("a", 1)), Rollout(), epoch)
    redis_store.journal.append(M, Turn(1, {}, 0), epoch)
    redis_store.commands.push(M, {"id": "1", "do": "pause"})
    names = {k.decode() for k in raw.keys("*")}
    assert {n for n in names if "{flights}" not in n} == {"riverrun:models"}
    assert len(names) == 13


def test_a_client_of_the_machine_s_own_clock(redis_url: str) -> None:
    store = open_store(redis_url)
    epoch = owned(store)
    store.snapshots.set_rollout(M, Rollout(1), Rollout(), epoch)
    assert abs(store.snapshots.audit(M)[0]["at_ms"] - SystemClock().now_ms()) < 60_000
    store.close()
