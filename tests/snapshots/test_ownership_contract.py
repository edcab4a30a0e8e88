"""The contract of ownership, journal and commands, over memory and a real Redis."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from core.errors import Conflict, StaleEpoch, StoreError
from core.records import Lane, Turn
from core.rollout import Rollout
from snapshots.open_store import Store
from snapshots.store import Snapshot

M = "flights"


def owned(store: Store, model: str = M, owner: str = "me") -> int:
    epoch = store.ownership.acquire(model, owner, 60)
    assert epoch is not None
    return epoch


def snapshot(text: str = "x", model: str = M, **parts: bytes) -> Snapshot:
    return Snapshot(
        model, 0, {"note": text, "turn": 2**70}, parts or {"fold": text.encode(), "learner/a": b"same"}
    )


def turn(number: int) -> Turn:
    command = {"id": f"c{number}", "do": "pause", "for": [1, None, 2.5]}
    return Turn(
        number, {Lane("events", 1): (5, 9), Lane("labels", 0): (0, 2**40)}, 1_385_000_000_123, (command,)
    )


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
