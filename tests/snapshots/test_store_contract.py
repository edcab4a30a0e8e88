"""The contract of the snapshot store, over memory and a real Redis."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest

from core.errors import Conflict, CorruptSnapshot, StoreError, UnknownVersion
from core.rollout import Assignment, Rollout
from snapshots.codec import encode
from snapshots.open_store import Store
from snapshots.sealed import seal, unseal, with_parts
from snapshots.store import Change, Snapshot

M = "flights"


def owned(store: Store, model: str = M, owner: str = "me") -> int:
    epoch = store.ownership.acquire(model, owner, 60)
    assert epoch is not None
    return epoch


def snapshot(text: str = "x", model: str = M, **parts: bytes) -> Snapshot:
    return Snapshot(
        model, 0, {"note": text, "turn": 2**70}, parts or {"fold": text.encode(), "learner/a": b"same"}
    )


def served(revision: int, version: int, reason: str = "first") -> Rollout:
    return Rollout(revision, Assignment("a", version), reason=reason)


# Versions


def test_an_unknown_model_is_empty(store: Store) -> None:
    assert list(store.snapshots.versions(M)) == []
    assert list(store.snapshots.models()) == []
    assert store.snapshots.rollout(M) == Rollout()
    assert list(store.snapshots.audit(M)) == []
    assert list(store.journal.read(M, 0)) == []
    assert store.ownership.owner(M) is None
    assert list(store.commands.pending(M)) == []
    with pytest.raises(UnknownVersion, match="flights has no version 1"):
        store.snapshots.load(M, 1)


def test_publish_and_load(store: Store) -> None:
    epoch = owned(store)
    first = snapshot("one", fold=bytes(range(256)) * 500, empty=b"")
    manifest = dict(first.manifest)
    assert store.snapshots.publish(first, epoch) == 1
    assert store.snapshots.publish(snapshot("two"), epoch) == 2
    assert first.manifest == manifest  # the caller's stays as it was
    assert list(store.snapshots.versions(M)) == [1, 2]
    assert list(store.snapshots.models()) == [M]
    back = store.snapshots.load(M, 1)
    assert (back.model, back.version, dict(back.parts)) == (M, 1, dict(first.parts))
    assert back.manifest["note"] == "one"
    assert back.manifest["turn"] == 2**70
    assert back.manifest["parts"]["fold"]["size"] == 128_000
    assert len(back.manifest["parts"]["fold"]["sha256"]) == 64


def test_loading_some_parts(store: Store) -> None:
    epoch = owned(store)
    store.snapshots.publish(snapshot("one"), epoch)
    assert dict(store.snapshots.load(M, 1, ["learner/a"]).parts) == {"learner/a": b"same"}
    assert dict(store.snapshots.load(M, 1, []).parts) == {}
    with pytest.raises(StoreError, match="no part 'learner/b'"):
        store.snapshots.load(M, 1, ["learner/b"])


def test_a_loaded_snapshot_can_be_published_again(store: Store) -> None:
    epoch = owned(store)
    store.snapshots.publish(snapshot("one"), epoch)
    assert store.snapshots.publish(store.snapshots.load(M, 1), epoch) == 2
    assert store.snapshots.load(M, 2).manifest == store.snapshots.load(M, 1).manifest


def test_models_do_not_mix(store: Store) -> None:
    epoch, other = owned(store), owned(store, "bikes")
    store.snapshots.publish(snapshot("one"), epoch)
    store.snapshots.publish(snapshot("two", "bikes"), other)
    assert list(store.snapshots.models()) == ["bikes", M]
    assert store.snapshots.load("bikes", 1).manifest["note"] == "two"
    assert store.snapshots.prune("bikes", 0, other) == 1
    assert dict(store.snapshots.load(M, 1).parts) == dict(snapshot("one").parts)
    store.commands.push(M, {"id": "1", "do": "pause"})
    assert list(store.commands.pending("bikes")) == []


def test_prune_keeps_the_newest_the_served_and_shared_parts(store: Store) -> None:
    epoch = owned(store)
    for n in range(1, 8):
        store.snapshots.publish(snapshot(f"v{n}"), epoch)
    rollout = Rollout(1, Assignment("a", 2), Assignment("b", 3), (Assignment("c", 4),), 0.1)
    store.snapshots.set_rollout(M, rollout, Rollout(), epoch)
    assert store.snapshots.prune(M, 2, epoch) == 2
    assert list(store.snapshots.versions(M)) == [2, 3, 4, 6, 7]
    for n in (2, 3, 4, 6, 7):
        assert dict(store.snapshots.load(M, n).parts) == dict(snapshot(f"v{n}").parts)
    with pytest.raises(UnknownVersion):
        store.snapshots.load(M, 5)
    assert store.snapshots.prune(M, 2, epoch) == 0
    assert store.snapshots.publish(snapshot("v8"), epoch) == 8  # numbers are never given twice


def test_version_numbers_go_on_after_everything_was_pruned(store: Store) -> None:
    epoch = owned(store)
    store.snapshots.publish(snapshot("one"), epoch)
    assert store.snapshots.prune(M, 0, epoch) == 1
    assert list(store.snapshots.versions(M)) == []
    assert store.snapshots.publish(snapshot("two"), epoch) == 2


# Roles


def test_rollout_is_compared_and_set(store: Store) -> None:
    epoch = owned(store)
    store.snapshots.publish(snapshot("one"), epoch)
    store.snapshots.set_rollout(M, served(1, 1, "first model"), Rollout(), epoch)
    assert store.snapshots.rollout(M) == served(1, 1)
    assert store.snapshots.rollout(M).reason == "first model"
    with pytest.raises(Conflict, match="revision 0 was expected, 1 is current"):
        store.snapshots.set_rollout(M, served(1, 1), Rollout(), epoch)
    with pytest.raises(UnknownVersion, match="no version 7"):
        store.snapshots.set_rollout(M, served(2, 7), served(1, 1), epoch)
    with pytest.raises(StoreError, match="revision 5 does not follow 1"):
        store.snapshots.set_rollout(M, served(5, 1), served(1, 1), epoch)
    with pytest.raises(Conflict):  # the same revision, but not what is there
        store.snapshots.set_rollout(M, Rollout(2), Rollout(1), epoch)
    store.snapshots.set_rollout(M, Rollout(2, reason="empty"), served(1, 1), epoch)
    audit = store.snapshots.audit(M)
    assert [(row["revision"], row["reason"], row["at_ms"]) for row in audit] == [
        (1, "first model", 1_000),
        (2, "empty", 1_000),
    ]
    assert Rollout.from_state(dict(audit[0])) == served(1, 1)
    assert [row["revision"] for row in store.snapshots.audit(M, 1)] == [2]
    assert list(store.snapshots.audit(M, 0)) == []


def test_of_many_writers_one_wins(store: Store) -> None:
    epoch = owned(store)
    store.snapshots.publish(snapshot("one"), epoch)
    outcomes: list[str] = []
    barrier = threading.Barrier(4)

    def write(name: str) -> None:
        barrier.wait()
        try:
            new = Rollout(1, Assignment(name, 1))
            store.snapshots.set_rollout(M, new, Rollout(), epoch)
            outcomes.append(name)
        except Conflict:
            outcomes.append("conflict")

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes)[:3] == ["conflict"] * 3
    champion = store.snapshots.rollout(M).champion
    assert champion is not None
    assert champion.lineage in outcomes
    assert len(store.snapshots.audit(M)) == 1


def test_publishing_from_many_threads_gives_each_a_version(store: Store) -> None:
    epoch = owned(store)
    versions: list[int] = []

    def work(name: str) -> None:
        versions.extend(store.snapshots.publish(snapshot(f"{name}{n}"), epoch) for n in range(5))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(versions) == list(range(1, 16))
    notes = {store.snapshots.load(M, n).manifest["note"] for n in versions}
    assert len(notes) == 15


# Watching


class Watcher:
    """Watches in a thread, as a predictor does."""

    def __init__(self, store: Store, models: list[str], poll_s: float = 30.0) -> None:
        self.changes: list[tuple[Change, float]] = []
        self._new = threading.Condition()
        self.thread = threading.Thread(target=self._run, args=(store, models, poll_s))
        self.thread.start()

    def _run(self, store: Store, models: list[str], poll_s: float) -> None:
        for change in store.snapshots.watch(models, poll_s):
            with self._new:
                self.changes.append((change, time.monotonic()))
                self._new.notify_all()

    def wait(self, n: int, timeout_s: float = 10) -> list[tuple[str, int]]:
        """Model and revision of the first n changes."""
        with self._new:
            assert self._new.wait_for(lambda: len(self.changes) >= n, timeout_s), self.changes
            return [(c.model, c.rollout.revision) for c, _ in self.changes]

    def ended(self) -> bool:
        self.thread.join(5)
        return not self.thread.is_alive()


def test_watch_sends_what_is_and_then_every_change(store: Store) -> None:
    epoch = owned(store)
    store.snapshots.publish(snapshot("one"), epoch)
    store.snapshots.set_rollout(M, served(1, 1), Rollout(), epoch)
    watcher = Watcher(store, [M, "bikes"])  # polls too rarely to see anything: only pushes can
    try:
        assert sorted(watcher.wait(2)) == [("bikes", 0), (M, 1)]
        for n in range(2, 6):
            store.snapshots.set_rollout(M, served(n, 1), served(n - 1, 1), epoch)
            assert watcher.wait(n + 1)[-1] == (M, n)
        assert watcher.changes[-1][0].rollout == served(5, 1)
    finally:
        store.close()
    assert watcher.ended()


def test_watch_ends_when_the_store_is_closed_before_it_begins(store: Store) -> None:
    changes = store.snapshots.watch([M], 30.0)
    store.close()
    assert list(changes) == []


def test_a_damaged_manifest_is_refused_by_every_bit(store: Store) -> None:
    sealed = seal(with_parts(snapshot("one")))
    assert unseal(sealed, M, 0)["note"] == "one"
    for at in range(len(sealed)):
        flipped = bytearray(sealed)
        flipped[at] ^= 1 << (at % 8)
        with pytest.raises(CorruptSnapshot):
            unseal(bytes(flipped), M, 0)
    with pytest.raises(CorruptSnapshot, match="it is of 'flights' version 0"):
        unseal(sealed, "bikes", 0)
    with pytest.raises(CorruptSnapshot):
        unseal(b"", M, 0)
    newer = encode({"format": 99, "model": M, "version": 0, "manifest": {}})
    with pytest.raises(CorruptSnapshot, match="format 99"):
        unseal(hashlib.sha256(newer).digest() + newer, M, 0)
