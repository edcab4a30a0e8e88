"""The contract of the four ports, over memory and a real Redis."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable

import pytest

from core.errors import Conflict, CorruptSnapshot, StaleEpoch, StoreError, UnknownVersion
from core.records import Lane, Turn
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


def turn(number: int) -> Turn:
    command = {"id": f"c{number}", "do": "pause", "for": [1, None, 2.5]}
    return Turn(
        number, {Lane("events", 1): (5, 9), Lane("labels", 0): (0, 2**40)}, 1_385_000_000_123, (command,)
    )


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


# Ownership


def test_epochs_only_grow(store: Store) -> None:
    first = owned(store)
    assert store.ownership.owner(M) == ("me", first)
    assert store.ownership.acquire(M, "you", 60) is None
    second = owned(store)
    assert second > first
    store.ownership.renew(M, "me", second, 60)
    with pytest.raises(StaleEpoch):
        store.ownership.renew(M, "me", first, 60)
    store.ownership.release(M, "me", first)  # lost already: nothing happens
    assert store.ownership.owner(M) == ("me", second)
    store.ownership.release(M, "me", second)
    assert store.ownership.owner(M) is None
    third = owned(store, owner="you and I")
    assert third > second
    assert store.ownership.owner(M) == ("you and I", third)
    with pytest.raises(StaleEpoch):
        store.ownership.renew(M, "me", second, 60)
    with pytest.raises(StaleEpoch, match="you and I"):
        store.ownership.renew(M, "me", third, 60)


def test_of_many_owners_one_gets_the_lease(store: Store) -> None:
    got: list[int | None] = []
    barrier = threading.Barrier(4)

    def acquire(owner: str) -> None:
        barrier.wait()
        got.append(store.ownership.acquire(M, owner, 60))

    threads = [threading.Thread(target=acquire, args=(f"o{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.count(None) == 3


WRITES: dict[str, Callable[[Store, int], object]] = {
    "publish": lambda s, e: s.snapshots.publish(snapshot("stale"), e),
    "prune": lambda s, e: s.snapshots.prune(M, 0, e),
    "set_rollout": lambda s, e: s.snapshots.set_rollout(M, Rollout(1), Rollout(), e),
    "append": lambda s, e: s.journal.append(M, turn(2), e),
    "trim": lambda s, e: s.journal.trim(M, 1, e),
    "renew": lambda s, e: s.ownership.renew(M, "me", e, 60),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("shift", [-1, 1])
def test_a_write_at_another_epoch_is_refused(store: Store, write: str, shift: int) -> None:
    owned(store)
    epoch = owned(store)
    store.snapshots.publish(snapshot("one"), epoch)
    store.journal.append(M, turn(1), epoch)
    with pytest.raises(StaleEpoch):
        WRITES[write](store, epoch + shift)
    assert list(store.snapshots.versions(M)) == [1]
    assert store.snapshots.rollout(M) == Rollout()
    assert [t.number for t in store.journal.read(M, 0)] == [1]
    WRITES[write](store, epoch)


# Journal


def test_turns_come_back_in_order(store: Store) -> None:
    epoch = owned(store)
    for n in range(3, 13):
        store.journal.append(M, turn(n), epoch)
    turns = store.journal.read(M, 0)
    assert [t.number for t in turns] == list(range(3, 13))
    assert turns[0] == turn(3)
    assert [t.number for t in store.journal.read(M, 10)] == [11, 12]
    assert list(store.journal.read(M, 12)) == []
    assert list(store.journal.read(M, 99)) == []


def test_a_first_turn_may_have_any_number(store: Store) -> None:
    epoch = owned(store)
    store.journal.append(M, turn(0), epoch)
    store.journal.append(M, turn(1), epoch)
    assert [t.number for t in store.journal.read(M, -1)] == [0, 1]
    assert [t.number for t in store.journal.read(M, 0)] == [1]


@pytest.mark.parametrize("number", [1, 4, 5, 7, 100])
def test_a_turn_that_does_not_follow_is_refused(store: Store, number: int) -> None:
    epoch = owned(store)
    for n in (4, 5):
        store.journal.append(M, turn(n), epoch)
    with pytest.raises(Conflict, match=f"turn {number}"):
        store.journal.append(M, turn(number), epoch)
    store.journal.append(M, turn(6), epoch)
    assert [t.number for t in store.journal.read(M, 0)] == [4, 5, 6]


def test_numbers_go_on_over_epochs_and_trims(store: Store) -> None:
    epoch = owned(store)
    for n in (1, 2, 3):
        store.journal.append(M, turn(n), epoch)
    epoch = owned(store)
    with pytest.raises(Conflict):
        store.journal.append(M, turn(3), epoch)
    store.journal.append(M, turn(4), epoch)
    store.journal.trim(M, 2, epoch)
    assert [t.number for t in store.journal.read(M, 0)] == [3, 4]
    store.journal.trim(M, 2, epoch)
    store.journal.trim(M, 10, epoch)
    assert list(store.journal.read(M, 0)) == []
    epoch = owned(store)
    with pytest.raises(Conflict):
        store.journal.append(M, turn(4), epoch)
    with pytest.raises(Conflict):
        store.journal.append(M, turn(6), epoch)
    store.journal.append(M, turn(5), epoch)
    assert [t.number for t in store.journal.read(M, 0)] == [5]


def test_a_long_journal_is_read_whole(store: Store) -> None:
    epoch = owned(store)
    for n in range(1, 1_102):
        store.journal.append(M, Turn(n, {}, n), epoch)
    assert [t.number for t in store.journal.read(M, 50)] == list(range(51, 1_102))


# Commands


def test_commands_queue_until_done(store: Store) -> None:
    for n in range(4):
        store.commands.push(M, {"id": f"c{n}", "do": "promote", "version": n, "notes": ["x", None]})
    store.commands.push(M, {"id": "c1", "do": "promote", "version": 1, "notes": ["x", None]})
    pending = store.commands.pending(M)
    assert [c["id"] for c in pending] == ["c0", "c1", "c2", "c3"]
    assert pending[2] == {"id": "c2", "do": "promote", "version": 2, "notes": ["x", None]}
    store.commands.done(M, ["c1", "c3", "unknown"])
    assert [c["id"] for c in store.commands.pending(M)] == ["c0", "c2"]
    store.commands.done(M, [])
    store.commands.done(M, ["c0", "c2"])
    assert list(store.commands.pending(M)) == []


@pytest.mark.parametrize("command", [{}, {"id": "x"}, {"id": "", "do": "pause"}, {"id": 3, "do": "pause"}])
def test_a_command_needs_an_id_and_a_deed(store: Store, command: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="a command needs"):
        store.commands.push(M, command)
    assert list(store.commands.pending(M)) == []


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
