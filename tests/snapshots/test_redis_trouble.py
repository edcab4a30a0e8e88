"""A server that is away, full, read-only, cannot save, or forbids: told in words, and nothing is lost."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import redis

from core.errors import StoreError, StoreUnavailable
from core.records import Turn
from core.rollout import Assignment, Rollout
from snapshots.open_store import open_store
from snapshots.store import Snapshot
from tests.snapshots.store_harness import KEYS, M, check_versions, owned, snapshot


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


def test_a_full_server_gets_rid_of_what_a_dead_publisher_left(own_server: Any, cut_after: Any) -> None:
    own_server.options = ["--maxmemory", "6mb", "--maxmemory-policy", "noeviction"]
    own_server.start()
    store, raw = open_store(own_server.url), redis.Redis.from_url(own_server.url)
    store.snapshots.publish(snapshot("one"), owned(store))
    big = Snapshot(M, 0, {"note": "big"}, {f"p{n}": bytes([n]) * 900_000 for n in range(3)})
    epoch = owned(store)
    with cut_after(4, RuntimeError("died")), pytest.raises(RuntimeError):
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
        raw.execute_command(
            "ACL SETUSER reader on >s3cr3t ~riverrun:* resetchannels &riverrun:* -@all +@read +@connection"
        )
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
