"""The ports to the snapshot store. Redis and memory pass the same contract tests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.plain import Plain, State
from core.records import Turn
from core.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a model: a manifest of plain data, and named parts of encoded state ("fold",
    "learner/NAME"). `version` is 0 until published. The store adds to the manifest, under "parts", the
    SHA-256 and size of each part; parts with equal bytes are kept once."""

    model: str
    version: int
    manifest: State
    parts: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Change:
    """The model's rollout as it is now: sent first when watching begins, then at every change."""

    model: str
    rollout: Rollout


class SnapshotStore(Protocol):
    """Versions and roles. Every write names the writer's epoch; one below the newest is refused."""

    def publish(self, snapshot: Snapshot, epoch: int) -> int:
        """Writes parts, reads them back, writes the manifest, then lets the newest version be this one
        by compare-and-set; a crash in between leaves the previous version newest. Returns the version
        (previous + 1). Raises StaleEpoch, StoreUnavailable."""
        ...

    def load(self, model: str, version: int, parts: Collection[str] | None = None) -> Snapshot:
        """The version with the named parts (None: all), digests verified.
        Raises UnknownVersion, CorruptSnapshot, StoreUnavailable."""
        ...

    def versions(self, model: str) -> Sequence[int]:
        """The versions kept, oldest first; empty where there are none."""
        ...

    def prune(self, model: str, keep: int, epoch: int) -> int:
        """Deletes all but the newest `keep` versions and those the rollout names, and parts that
        no kept version uses. Returns how many versions went."""
        ...

    def models(self) -> Sequence[str]:
        """The models that have a rollout or a version, sorted."""
        ...

    def rollout(self, model: str) -> Rollout:
        """Who serves now; `Rollout()` where nothing was ever set."""
        ...

    def set_rollout(self, model: str, new: Rollout, expected: Rollout, epoch: int) -> None:
        """Compare-and-set; `new.revision` is `expected.revision + 1`. Appended to the audit and pushed
        to watchers. Raises Conflict, StaleEpoch, UnknownVersion (a version that is not kept)."""
        ...

    def audit(self, model: str, limit: int = 100) -> Sequence[Mapping[str, Plain]]:
        """The newest changes of rollout, oldest first: the rollout's state and `at_ms`."""
        ...

    def watch(self, models: Collection[str], poll_s: float = 1.0) -> Iterator[Change]:
        """The current rollout of each model, then every newer revision as it is pushed (or found by
        polling, where a push was lost). Blocks between changes; survives a store that goes away and
        comes back. Ends when the store is closed."""
        ...


class Journal(Protocol):
    """The turns of a model, in order."""

    def append(self, model: str, turn: Turn, epoch: int) -> None:
        """Writes the turn down; on return it is durable as far as the store's own settings go. Turn
        numbers are consecutive. Raises StaleEpoch, Conflict (number not the next one), StoreUnavailable."""
        ...

    def read(self, model: str, after: int) -> Sequence[Turn]:
        """The turns with a number above `after`, in order."""
        ...

    def trim(self, model: str, upto: int, epoch: int) -> None:
        """Forgets the turns up to and with this number."""
        ...


class Ownership(Protocol):
    """Who may write a model: a lease with an epoch that grows at every change of hands."""

    def acquire(self, model: str, owner: str, lease_s: float) -> int | None:
        """The new epoch; None while another owner's lease runs. The same owner gets a new epoch."""
        ...

    def renew(self, model: str, owner: str, epoch: int, lease_s: float) -> None:
        """Extends the lease. Raises StaleEpoch where somebody else has taken it."""
        ...

    def release(self, model: str, owner: str, epoch: int) -> None:
        """Gives the lease back; nothing happens where it is lost already."""
        ...

    def owner(self, model: str) -> tuple[str, int] | None:
        """Who holds the lease, and their epoch; None where nobody does."""
        ...


class Commands(Protocol):
    """Operators' commands on their way into a model's next turn."""

    def push(self, model: str, command: Mapping[str, Plain]) -> None:
        """Queues a command: plain data with an "id" and a "do" ("promote", "rollback", "pause", ...)."""
        ...

    def pending(self, model: str) -> Sequence[Mapping[str, Plain]]:
        """The queued commands, oldest first; they stay queued until `done`."""
        ...

    def done(self, model: str, ids: Collection[str]) -> None:
        """Takes commands off the queue, once the turn that carries them is journaled."""
        ...
