"""Writers that change places at the worst moment: the one who lost the model writes nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from core.clock import ManualClock
from core.errors import Conflict, StaleEpoch, UnknownVersion
from core.records import Turn
from core.rollout import Assignment, Rollout
from snapshots import redis_client
from snapshots.codec import encode
from snapshots.open_store import Store, open_store
from tests.snapshots.store_harness import KEYS, M, owned, snapshot


def snapshot_keys(raw: redis.Redis) -> dict[str, Any]:
    """Everything that belongs to versions, without what uploads may leave."""
    names = [k.decode() for k in raw.keys(f"riverrun:{{{M}}}:manifest:*")]
    return {
        "current": raw.get(KEYS.current),
        "versions": raw.zrange(KEYS.versions, 0, -1),
        "manifests": {name: raw.get(name) for name in sorted(names)},
    }


WRITES: dict[str, Callable[[Store, int], object]] = {
    "publish": lambda s, e: s.snapshots.publish(snapshot("stale"), e),
    "prune": lambda s, e: s.snapshots.prune(M, 0, e),
    "set_rollout": lambda s, e: s.snapshots.set_rollout(M, Rollout(1), Rollout(), e),
    "append": lambda s, e: s.journal.append(M, Turn(3, {}, 0), e),
    "trim": lambda s, e: s.journal.trim(M, 2, e),
    "renew": lambda s, e: s.ownership.renew(M, "me", e, 60),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_writer_replaced_between_its_check_and_its_write_is_refused(
    redis_store: Store, redis_url: str, raw: redis.Redis, before_command: Any, write: str
) -> None:
    epoch = owned(redis_store)
    redis_store.snapshots.publish(snapshot("one"), epoch)
    redis_store.journal.append(M, Turn(1, {}, 0), epoch)
    redis_store.journal.append(M, Turn(2, {}, 0), epoch)
    thief = open_store(redis_url)
    before = snapshot_keys(raw)

    def steal() -> None:
        redis_store.ownership.release(M, "me", epoch)
        assert thief.ownership.acquire(M, "thief", 60)

    command = {"append": "XADD", "trim": "XTRIM"}.get(write, "EXEC")
    with before_command(command, steal) as called:
        with pytest.raises(StaleEpoch):
            WRITES[write](redis_store, epoch)
        assert called()
    assert snapshot_keys(raw) == before
    assert redis_store.snapshots.rollout(M) == Rollout()
    assert [t.number for t in redis_store.journal.read(M, 0)] == [1, 2]
    owner = thief.ownership.owner(M)
    assert owner is not None
    assert owner[0] == "thief"
    WRITES[write](thief, owner[1]) if write != "renew" else thief.ownership.renew(M, "thief", owner[1], 60)
    thief.close()


def test_a_version_pruned_while_it_is_given_a_role_is_refused(
    redis_store: Store, redis_url: str, before_command: Any
) -> None:
    epoch = owned(redis_store)
    redis_store.snapshots.publish(snapshot("one"), epoch)
    other = open_store(redis_url)
    act = lambda: other.snapshots.prune(M, 0, epoch) and None  # noqa: E731
    with before_command("EXEC", act), pytest.raises(UnknownVersion):
        redis_store.snapshots.set_rollout(M, Rollout(1, Assignment("a", 1)), Rollout(), epoch)
    other.close()


def test_blobs_pruned_while_they_are_published_are_written_again(
    redis_store: Store, redis_url: str, before_command: Any
) -> None:
    epoch = owned(redis_store)
    other = open_store(redis_url)
    with before_command("EXEC", lambda: other.snapshots.prune(M, 0, epoch) and None) as called:
        assert redis_store.snapshots.publish(snapshot("one"), epoch) == 1
        assert called()
    assert redis_store.snapshots.load(M, 1).parts == snapshot("one").parts
    other.close()


def test_of_two_writers_in_one_moment_the_second_conflicts(
    redis_store: Store, redis_url: str, before_command: Any
) -> None:
    epoch = owned(redis_store)
    other = open_store(redis_url)
    first = Rollout(1, reason="first")
    act = lambda: other.snapshots.set_rollout(M, first, Rollout(), epoch)  # noqa: E731
    with before_command("EXEC", act), pytest.raises(Conflict):
        redis_store.snapshots.set_rollout(M, Rollout(1, canary_share=0.5), Rollout(), epoch)
    assert redis_store.snapshots.rollout(M).reason == "first"
    other.close()


def test_an_expired_lease_is_free_and_an_owner_nobody_replaced_goes_on(redis_store: Store) -> None:
    epoch = redis_store.ownership.acquire(M, "me", 0.03)
    assert epoch is not None
    assert redis_store.ownership.acquire(M, "you", 60) is None
    time.sleep(0.06)
    assert redis_store.ownership.owner(M) is None
    redis_store.snapshots.publish(snapshot("one"), epoch)
    redis_store.ownership.renew(M, "me", epoch, 0.03)
    assert redis_store.ownership.owner(M) == ("me", epoch)
    time.sleep(0.06)
    second = redis_store.ownership.acquire(M, "you", 60)
    assert second is not None
    assert second > epoch
    with pytest.raises(StaleEpoch):
        redis_store.ownership.renew(M, "me", epoch, 60)


def test_epochs_grow_even_over_a_store_that_lost_its_data(raw: redis.Redis, redis_url: str) -> None:
    clock = ManualClock(1_700_000_000_000)
    store = open_store(redis_url, clock)
    first = owned(store)
    store.journal.append(M, Turn(2, {}, 0), first)
    raw.flushall()
    for write in WRITES.values():
        with pytest.raises(StaleEpoch):
            write(store, first)
    clock.advance(2)
    second = owned(store)
    assert second > first
    store.journal.append(M, Turn(8, {}, 0), second)
    with pytest.raises(StaleEpoch):
        store.journal.append(M, Turn(9, {}, 0), first)
    store.close()


def test_disturbed_again_and_again_a_transaction_gives_up(
    redis_store: Store, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = owned(redis_store)
    monkeypatch.setattr(redis_client, "_ATTEMPTS", 3)
    send = redis.UnixDomainSocketConnection.send_packed_command
    busy = threading.local()

    def hooked(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(busy, "active", False) and b"EXEC" in b"".join(map(bytes, command)):
            busy.active = True
            raw.set(KEYS.rollout, encode(Rollout().state()))
            busy.active = False
        return send(self, command, *args, **kwargs)

    monkeypatch.setattr(redis.UnixDomainSocketConnection, "send_packed_command", hooked)
    with pytest.raises(Conflict, match="3 times in a row"):
        redis_store.snapshots.set_rollout(M, Rollout(1), Rollout(), epoch)
