"""What only a real Redis can show: damaged bytes, writers that change places at the worst moment, a server
that goes, comes back, is full or forbids, and a publisher that dies after any of its commands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import redis

from core.clock import ManualClock, SystemClock
from core.errors import Conflict, CorruptSnapshot, StaleEpoch, StoreError, StoreUnavailable, UnknownVersion
from core.records import Turn
from core.rollout import Assignment, Rollout
from snapshots import redis_client
from snapshots.codec import encode
from snapshots.open_store import Store, open_store
from snapshots.redis_client import Keys
from snapshots.store import Change, Snapshot

M = "flights"
KEYS = Keys(M)


def owned(store: Store, owner: str = "me") -> int:
    epoch = store.ownership.acquire(M, owner, 60)
    assert epoch is not None
    return epoch


def snapshot(text: str) -> Snapshot:
    return Snapshot(M, 0, {"note": text}, {"fold": text.encode() * 50, "same": b"same" * 10})


def snapshot_keys(raw: redis.Redis) -> dict[str, Any]:
    """Everything that belongs to versions, without what uploads may leave."""
    names = [k.decode() for k in raw.keys(f"riverrun:{{{M}}}:manifest:*")]
    return {
        "current": raw.get(KEYS.current),
        "versions": raw.zrange(KEYS.versions, 0, -1),
        "manifests": {name: raw.get(name) for name in sorted(names)},
    }


# Damage


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


# Blobs


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


# Fencing


WRITES: dict[str, Callable[[Store, int], object]] = {
    "publish": lambda s, e: s.snapshots.publish(snapshot("stale"), e),
    "prune": lambda s, e: s.snapshots.prune(M, 0, e),
    "set_rollout": lambda s, e: s.snapshots.set_rollout(M, Rollout(1), Rollout(), e),
    "append": lambda s, e: s.journal.append(M, Turn(3, {}, 0), e),
    "trim": lambda s, e: s.journal.trim(M, 2, e),
    "renew": lambda s, e: s.ownership.renew(M, "me", e, 60),
}


@contextmanager
def before_command(
    monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]
) -> Iterator[Callable[[], bool]]:
    """Calls `act` once, just before the next command of this name (EXEC: the whole queued transaction)
    is sent. Yields whether it was called."""
    called = False
    send = redis.Connection.send_packed_command

    def hooked(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal called
        data = b"".join(map(bytes, command)) if isinstance(command, list) else bytes(command)
        if not called and name.encode() in data:
            called = True
            act()
        return send(self, command, *args, **kwargs)

    with monkeypatch.context() as patch:
        for kind in (redis.Connection, redis.UnixDomainSocketConnection):
            patch.setattr(kind, "send_packed_command", hooked)
        yield lambda: called


@pytest.mark.parametrize("write", WRITES)
def test_a_writer_replaced_between_its_check_and_its_write_is_refused(
    redis_store: Store, redis_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch, write: str
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
    with before_command(monkeypatch, command, steal) as called:
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
    redis_store: Store, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = owned(redis_store)
    redis_store.snapshots.publish(snapshot("one"), epoch)
    other = open_store(redis_url)
    act = lambda: other.snapshots.prune(M, 0, epoch) and None  # noqa: E731
    with before_command(monkeypatch, "EXEC", act), pytest.raises(UnknownVersion):
        redis_store.snapshots.set_rollout(M, Rollout(1, Assignment("a", 1)), Rollout(), epoch)
    other.close()


def test_blobs_pruned_while_they_are_published_are_written_again(
    redis_store: Store, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = owned(redis_store)
    other = open_store(redis_url)
    with before_command(monkeypatch, "EXEC", lambda: other.snapshots.prune(M, 0, epoch) and None) as called:
        assert redis_store.snapshots.publish(snapshot("one"), epoch) == 1
        assert called()
    assert redis_store.snapshots.load(M, 1).parts == snapshot("one").parts
    other.close()


def test_of_two_writers_in_one_moment_the_second_conflicts(
    redis_store: Store, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = owned(redis_store)
    other = open_store(redis_url)
    first = Rollout(1, reason="first")
    act = lambda: other.snapshots.set_rollout(M, first, Rollout(), epoch)  # noqa: E731
    with before_command(monkeypatch, "EXEC", act), pytest.raises(Conflict):
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


# Crashes and lost connections


class Cut(Exception):
    """The process died here."""


@contextmanager
def cut_after(monkeypatch: pytest.MonkeyPatch, sends: int, error: Exception) -> Iterator[list[int]]:
    """Lets this many sends through, then raises instead of sending. A transaction is one send."""
    count = [0]
    send = redis.Connection.send_packed_command

    def hooked(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        if count[0] >= sends:
            raise error
        count[0] += 1
        return send(self, command, *args, **kwargs)

    with monkeypatch.context() as patch:
        for kind in (redis.Connection, redis.UnixDomainSocketConnection):
            patch.setattr(kind, "send_packed_command", hooked)
        yield count


@contextmanager
def lose_answer(monkeypatch: pytest.MonkeyPatch, reads: int) -> Iterator[None]:
    """Sends go through, but after this many answers the connection breaks."""
    count = 0
    read = redis.Connection.read_response

    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        if count >= reads:
            self.disconnect()
            raise redis.ConnectionError("the connection broke")
        count += 1
        return read(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        for kind in (redis.Connection, redis.UnixDomainSocketConnection):
            patch.setattr(kind, "read_response", hooked)
        yield


def check_versions(store: Store, texts: list[str]) -> None:
    """All versions kept are complete, and are these."""
    versions = store.snapshots.versions(M)
    assert [store.snapshots.load(M, v).manifest["note"] for v in versions] == texts
    for version, text in zip(versions, texts, strict=True):
        assert store.snapshots.load(M, version).parts == snapshot(text).parts


@pytest.mark.parametrize("fault", [Cut("died"), redis.ConnectionError("cut")], ids=["death", "cut"])
def test_a_publisher_may_die_after_any_command(
    raw: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    completed = False
    for k in range(60):
        raw.flushall()
        store = open_store(redis_url)
        epoch = owned(store)
        store.snapshots.publish(snapshot("one"), epoch)
        with cut_after(monkeypatch, k, fault) as count:
            try:
                store.snapshots.publish(snapshot("two"), epoch)
                completed = True
            except (Cut, StoreUnavailable):
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


def test_a_publisher_may_lose_any_answer(
    raw: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for k in range(60):
        raw.flushall()
        store = open_store(redis_url)
        epoch = owned(store)
        store.snapshots.publish(snapshot("one"), epoch)
        with lose_answer(monkeypatch, k):
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
    raw: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(redis_url)
    epoch = owned(store)
    for n in range(1, 30):
        with lose_answer(monkeypatch, n % 12):
            try:
                store.journal.append(M, Turn(n, {}, n), epoch)
            except StoreUnavailable:
                pass
            else:
                continue
        store.journal.append(M, Turn(n, {}, n), epoch)
    assert [t.number for t in store.journal.read(M, 0)] == list(range(1, 30))
    with lose_answer(monkeypatch, 0), pytest.raises(StoreUnavailable):
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


# A server that goes, is full, or forbids


def test_a_server_that_is_not_there(own_server: Any) -> None:
    store = open_store(own_server.url)
    for call in (
        store.ping,
        lambda: store.snapshots.versions(M),
        lambda: store.snapshots.load(M, 1),
        store.snapshots.models,
        lambda: store.snapshots.publish(snapshot("x"), 1),
        lambda: store.journal.append(M, Turn(1, {}, 0), 1),
        lambda: store.journal.read(M, 0),
        lambda: store.ownership.acquire(M, "me", 1),
        lambda: store.ownership.owner(M),
        lambda: store.commands.pending(M),
    ):
        with pytest.raises(StoreUnavailable, match=r"unix://.* cannot be reached"):
            call()
    own_server.start()
    store.ping()
    assert owned(store)
    store.close()


def fill(raw: redis.Redis) -> None:
    """Writes until the server takes no more."""
    for _ in range(100_000):
        try:
            raw.append("filler", b"x" * 1_000)
        except redis.exceptions.OutOfMemoryError:
            return
    pytest.fail("the server has no limit")


def test_a_full_server_keeps_the_version_it_has(own_server: Any) -> None:
    own_server.options = ["--maxmemory", "6mb", "--maxmemory-policy", "noeviction"]
    own_server.start()
    store = open_store(own_server.url)
    epoch = owned(store)
    store.snapshots.publish(snapshot("one"), epoch)
    store.snapshots.set_rollout(M, Rollout(1, Assignment("a", 1)), Rollout(), epoch)
    rng = np.random.default_rng(1)
    big = {f"p{n}": rng.bytes(900_000) for n in range(12)}
    with pytest.raises(StoreUnavailable, match="out of memory: raise its maxmemory"):
        store.snapshots.publish(Snapshot(M, 0, {"note": "big"}, big), epoch)
    raw = redis.Redis.from_url(own_server.url)
    assert raw.keys(KEYS.staged + "*") == []  # what the failed publish had written is gone already
    fill(raw)
    with pytest.raises(StoreUnavailable, match="out of memory"):
        store.journal.append(M, Turn(1, {}, 0), epoch)
    with pytest.raises(StoreUnavailable, match="out of memory"):
        store.snapshots.set_rollout(M, Rollout(2), Rollout(1, Assignment("a", 1)), epoch)
    check_versions(store, ["one"])
    assert store.snapshots.rollout(M) == Rollout(1, Assignment("a", 1))
    raw.delete("filler")
    assert store.snapshots.publish(snapshot("two"), epoch) == 2
    for n in (1, 2, 3):
        store.journal.append(M, Turn(n, {}, 0), epoch)
    fill(raw)
    store.journal.trim(M, 2, epoch)  # frees memory on a full server
    assert [t.number for t in store.journal.read(M, 0)] == [3]
    raw.close()
    store.close()


def test_a_full_server_gets_rid_of_what_a_dead_publisher_left(
    own_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_server.options = ["--maxmemory", "6mb", "--maxmemory-policy", "noeviction"]
    own_server.start()
    store, raw = open_store(own_server.url), redis.Redis.from_url(own_server.url)
    store.snapshots.publish(snapshot("one"), owned(store))
    big = Snapshot(M, 0, {"note": "big"}, {f"p{n}": bytes([n]) * 900_000 for n in range(3)})
    epoch = owned(store)
    with cut_after(monkeypatch, 4, Cut("died")), pytest.raises(Cut):
        store.snapshots.publish(big, epoch)
    assert len(raw.keys(KEYS.staged + ":*")) >= 2
    epoch = owned(store)
    fill(raw)
    assert store.snapshots.prune(M, 1, epoch) == 0
    assert raw.keys(KEYS.staged + "*") == []
    assert store.snapshots.publish(snapshot("two"), epoch) == 2
    raw.close()
    store.close()


def test_what_the_server_says_is_told_with_its_mend(own_server: Any) -> None:
    own_server.options = ["--dbfilename", "x"]
    own_server.start()
    store = open_store(own_server.url)
    epoch = owned(store)
    with redis.Redis.from_url(own_server.url) as raw:
        raw.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable, match="read-only replica: point store"):
            store.snapshots.publish(snapshot("x"), epoch)
        with pytest.raises(StoreUnavailable, match="read-only replica"):
            store.journal.append(M, Turn(1, {}, 0), epoch)
        raw.execute_command("REPLICAOF", "NO", "ONE")
        raw.config_set("min-replicas-to-write", 1)
        with pytest.raises(StoreUnavailable, match="fewer healthy replicas"):
            store.snapshots.publish(snapshot("x"), epoch)
        raw.config_set("min-replicas-to-write", 0)
        # Saving fails where the file cannot be made.
        raw.config_set("save", "3600 1")
        (own_server.folder / "x").mkdir()
        with pytest.raises(redis.RedisError):
            raw.save()
        raw.bgsave()
        deadline_s = time.monotonic() + 10
        while raw.info("persistence")["rdb_last_bgsave_status"] == "ok" and time.monotonic() < deadline_s:
            time.sleep(0.02)
        with pytest.raises(StoreUnavailable, match="cannot save to disk and refuses writes"):
            store.snapshots.publish(snapshot("x"), epoch)
        raw.config_set("stop-writes-on-bgsave-error", "no")
    assert store.snapshots.publish(snapshot("x"), epoch) == 1
    store.close()


def test_a_narrow_account_suffices_and_no_secret_is_told(own_server: Any) -> None:
    own_server.start()
    socket = f"{own_server.folder}/redis.sock"
    with redis.Redis.from_url(own_server.url) as raw:
        raw.execute_command(
            "ACL SETUSER trainer on >s3cr3t resetkeys ~riverrun:* resetchannels &riverrun:* "
            "+@all -@scripting -@dangerous"
        )
        raw.execute_command("ACL SETUSER reader on >s3cr3t ~riverrun:* &riverrun:* -@all +@read +@connection")
        raw.execute_command("ACL SETUSER default off")
        store = open_store(f"unix://trainer:s3cr3t@{socket}")
        epoch = owned(store)
        epoch = owned(store)
        for text in ("one", "two", "three"):
            store.snapshots.publish(snapshot(text), epoch)
        store.snapshots.set_rollout(M, Rollout(1, Assignment("a", 2)), Rollout(), epoch)
        store.snapshots.prune(M, 1, epoch)
        for n in (1, 2, 3):
            store.journal.append(M, Turn(n, {}, n), epoch)
        store.journal.trim(M, 1, epoch)
        assert len(store.journal.read(M, 0)) == 2
        store.commands.push(M, {"id": "1", "do": "pause"})
        store.commands.done(M, ["1"])
        store.ownership.renew(M, "me", epoch, 60)
        store.snapshots.models()
        changes = store.snapshots.watch([M])
        assert next(changes).rollout.revision == 1
        changes.close()  # type: ignore[attr-defined]
        store.ownership.release(M, "me", epoch)
        store.close()

        reader = open_store(f"unix://reader:s3cr3t@{socket}")
        assert reader.snapshots.load(M, 3).manifest["note"] == "three"
        changes = reader.snapshots.watch([M], 0.05)  # may not subscribe: polls
        assert next(changes).rollout.revision == 1
        changes.close()  # type: ignore[attr-defined]
        with pytest.raises(StoreError) as caught:
            reader.commands.push(M, {"id": "1", "do": "pause"})
        assert "forbids" in str(caught.value)
        assert "s3cr3t" not in str(caught.value)
        reader.close()
        wrong = open_store(f"unix://trainer:wr0ng@{socket}")
        with pytest.raises(StoreError, match="refuses the user or password") as refused:
            wrong.ping()
        assert not refused.value.retriable
        assert "wr0ng" not in str(refused.value)
        wrong.close()


# Watching


class Watcher:
    """Watches in a thread, as a predictor does."""

    def __init__(self, store: Store, poll_s: float) -> None:
        self.changes: list[tuple[Change, float]] = []
        self._new = threading.Condition()
        self.thread = threading.Thread(target=self._run, args=(store, poll_s))
        self.thread.start()

    def _run(self, store: Store, poll_s: float) -> None:
        for change in store.snapshots.watch([M], poll_s):
            with self._new:
                self.changes.append((change, time.monotonic()))
                self._new.notify_all()

    def wait_for(self, revision: int) -> None:
        with self._new:
            assert self._new.wait_for(lambda: self.revisions()[-1:] == [revision], 15), self.changes

    def revisions(self) -> list[int]:
        return [change.rollout.revision for change, _ in self.changes]


def set_revision(store: Store, epoch: int, revision: int) -> None:
    store.snapshots.set_rollout(M, Rollout(revision), Rollout(revision - 1), epoch)


def test_watch_survives_restarts_and_never_goes_back(own_server: Any) -> None:
    own_server.start()
    store, writer = open_store(own_server.url), open_store(own_server.url)
    epoch = owned(writer)
    set_revision(writer, epoch, 1)
    with redis.Redis.from_url(own_server.url) as raw:
        raw.save()
    set_revision(writer, epoch, 2)
    watcher = Watcher(store, 0.1)
    try:
        watcher.wait_for(2)
        own_server.stop()
        time.sleep(0.3)
        own_server.start()  # with what it had saved: revision 1
        time.sleep(0.5)
        assert watcher.revisions() == [2]
        set_revision(writer, epoch, 2)
        time.sleep(0.3)
        assert watcher.revisions() == [2]
        set_revision(writer, epoch, 3)
        watcher.wait_for(3)
        with redis.Redis.from_url(own_server.url) as raw:
            raw.set(KEYS.rollout, b"nonsense")
            time.sleep(0.3)
            raw.flushall()
            raw.client_kill_filter(_type="pubsub")
        time.sleep(0.3)
        assert watcher.revisions() == [2, 3]
        assert watcher.thread.is_alive()
    finally:
        store.close()
        writer.close()
    watcher.thread.join(5)
    assert not watcher.thread.is_alive()


def test_watch_begins_before_the_server_does(own_server: Any) -> None:
    store = open_store(own_server.url)
    watcher = Watcher(store, 0.05)
    time.sleep(0.2)
    try:
        own_server.start()
        watcher.wait_for(0)
        set_revision(store, owned(store), 1)
        watcher.wait_for(1)
    finally:
        store.close()
    watcher.thread.join(5)
    assert not watcher.thread.is_alive()


def test_polling_finds_what_no_push_told(redis_url: str, raw: redis.Redis) -> None:
    store = open_store(redis_url)
    watcher = Watcher(store, 0.1)
    try:
        watcher.wait_for(0)
        raw.set(KEYS.rollout, encode(Rollout(5).state()))
        watcher.wait_for(5)
    finally:
        store.close()
    watcher.thread.join(5)
    assert not watcher.thread.is_alive()


def test_a_client_of_the_machine_s_own_clock(redis_url: str) -> None:
    store = open_store(redis_url)
    epoch = owned(store)
    set_revision(store, epoch, 1)
    assert abs(store.snapshots.audit(M)[0]["at_ms"] - SystemClock().now_ms()) < 60_000
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
        set_revision(redis_store, epoch, 1)
