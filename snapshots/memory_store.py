"""The four ports in memory: for tests, backtests and simulation. Everything is kept as the same bytes
that Redis would hold, so nothing is shared with callers."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.clock import Clock
from core.errors import Conflict, CorruptSnapshot, StaleEpoch, UnknownVersion
from core.plain import Plain
from core.records import Turn
from core.rollout import Rollout
from snapshots.codec import decode, encode
from snapshots.sealed import (
    decode_rollout,
    decode_turn,
    encode_turn,
    require_command,
    require_next,
    seal,
    unseal,
    verified_part,
    wanted_parts,
    with_parts,
)
from snapshots.store import Change, Snapshot

AUDIT_KEPT = 1_000


@dataclass(slots=True)
class _Model:
    epoch: int = 0
    lease: tuple[str, int, float] | None = None  # owner, epoch, end (monotonic seconds)
    current: int = 0
    manifests: dict[int, bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    rollout: bytes | None = None
    audit: list[bytes] = field(default_factory=list)
    turns: dict[int, bytes] = field(default_factory=dict)
    last_turn: int | None = None
    commands: dict[str, bytes] = field(default_factory=dict)


class MemoryState:
    """What the four ports share. One lock; watchers wait on `changed`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.changed = threading.Condition()
        self.models: dict[str, _Model] = {}
        self.closed = False

    def model(self, name: str) -> _Model:
        return self.models.setdefault(name, _Model())

    def fenced(self, name: str, epoch: int) -> _Model:
        """The model, for a write at this epoch. Raises StaleEpoch."""
        model = self.model(name)
        if epoch != model.epoch:
            raise StaleEpoch(f"{name}: a write at epoch {epoch}, but its epoch is {model.epoch}")
        return model

    def close(self) -> None:
        """Ends every watch."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()


class MemorySnapshotStore:
    """A SnapshotStore in memory."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def publish(self, snapshot: Snapshot, epoch: int) -> int:
        snapshot = with_parts(snapshot)
        with self._state.changed:
            model = self._state.fenced(snapshot.model, epoch)
            version = model.current + 1
            sealed = seal(replace(snapshot, version=version))
            for name, data in snapshot.parts.items():
                model.blobs[snapshot.manifest["parts"][name]["sha256"]] = bytes(data)
            model.manifests[version] = sealed
            model.current = version
            return version

    def load(self, model: str, version: int, parts: Collection[str] | None = None) -> Snapshot:
        with self._state.changed:
            held = self._state.model(model)
            sealed = held.manifests.get(version)
            if sealed is None:
                raise UnknownVersion(f"{model} has no version {version}; it has {sorted(held.manifests)}")
            manifest = unseal(sealed, model, version)
            wanted = wanted_parts(manifest, version, parts)
            blobs = {name: held.blobs.get(part["sha256"]) for name, part in wanted.items()}
        loaded = {name: verified_part(blobs[name], name, wanted[name], model, version) for name in wanted}
        return Snapshot(model, version, manifest, loaded)

    def versions(self, model: str) -> Sequence[int]:
        with self._state.changed:
            return sorted(self._state.model(model).manifests)

    def prune(self, model: str, keep: int, epoch: int) -> int:
        with self._state.changed:
            held = self._state.fenced(model, epoch)
            versions = sorted(held.manifests)
            kept = set(versions[-keep:]) if keep > 0 else set()
            named = {a.version for _, a in decode_rollout(held.rollout).assigned()}
            gone = [version for version in versions if version not in kept | named]
            used: set[str] = set()
            for version in sorted(kept | named):
                try:
                    manifest = unseal(held.manifests.get(version, b""), model, version)
                except CorruptSnapshot:
                    if version in named:
                        raise
                    gone.append(version)  # nobody can load it
                    continue
                used |= {part["sha256"] for part in manifest["parts"].values()}
            for version in gone:
                del held.manifests[version]
            held.blobs = {sha256: data for sha256, data in held.blobs.items() if sha256 in used}
            return len(gone)

    def models(self) -> Sequence[str]:
        with self._state.changed:
            return sorted(n for n, m in self._state.models.items() if m.rollout is not None or m.manifests)

    def rollout(self, model: str) -> Rollout:
        with self._state.changed:
            return decode_rollout(self._state.model(model).rollout)

    def set_rollout(self, model: str, new: Rollout, expected: Rollout, epoch: int) -> None:
        require_next(model, new, expected)
        with self._state.changed:
            held = self._state.fenced(model, epoch)
            current = decode_rollout(held.rollout)
            if current != expected:
                raise Conflict(
                    f"rollout of {model}: revision {expected.revision} was expected, "
                    f"{current.revision} is current"
                )
            for _, assignment in new.assigned():
                if assignment.version not in held.manifests:
                    raise UnknownVersion(f"{model} has no version {assignment.version} to serve")
            held.rollout = encode(new.state())
            held.audit.append(encode({**new.state(), "at_ms": self._state.clock.now_ms()}))
            del held.audit[:-AUDIT_KEPT]
            self._state.changed.notify_all()

    def audit(self, model: str, limit: int = 100) -> Sequence[Mapping[str, Plain]]:
        if limit < 1:
            return []
        with self._state.changed:
            return [decode(entry) for entry in self._state.model(model).audit[-limit:]]

    def watch(self, models: Collection[str], poll_s: float = 1.0) -> Iterator[Change]:
        seen = dict.fromkeys(models, -1)
        while True:
            with self._state.changed:
                newer: list[Change] = []
                while not newer:
                    if self._state.closed:
                        return
                    for model, last in seen.items():
                        rollout = decode_rollout(self._state.model(model).rollout)
                        if rollout.revision > last:
                            newer.append(Change(model, rollout))
                    if not newer:
                        self._state.changed.wait(poll_s)
            for change in newer:
                seen[change.model] = change.rollout.revision
                yield change


class MemoryJournal:
    """A Journal in memory."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def append(self, model: str, turn: Turn, epoch: int) -> None:
        data = encode_turn(turn)
        with self._state.changed:
            held = self._state.fenced(model, epoch)
            if held.last_turn is not None and turn.number != held.last_turn + 1:
                raise Conflict(
                    f"journal of {model}: turn {turn.number} does not follow turn {held.last_turn}"
                )
            held.turns[turn.number] = data
            held.last_turn = turn.number

    def read(self, model: str, after: int) -> Sequence[Turn]:
        with self._state.changed:
            turns = self._state.model(model).turns
            return [decode_turn(data) for number, data in turns.items() if number > after]

    def trim(self, model: str, upto: int, epoch: int) -> None:
        with self._state.changed:
            held = self._state.fenced(model, epoch)
            held.turns = {number: data for number, data in held.turns.items() if number > upto}


class MemoryOwnership:
    """An Ownership in memory. Leases run by the clock's monotonic time."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def _holder(self, model: _Model) -> tuple[str, int] | None:
        if model.lease is None or model.lease[2] <= self._state.clock.monotonic_s():
            return None
        return model.lease[0], model.lease[1]

    def acquire(self, model: str, owner: str, lease_s: float) -> int | None:
        with self._state.changed:
            held = self._state.model(model)
            holder = self._holder(held)
            if holder is not None and holder[0] != owner:
                return None
            held.epoch += 1
            held.lease = (owner, held.epoch, self._state.clock.monotonic_s() + lease_s)
            return held.epoch

    def renew(self, model: str, owner: str, epoch: int, lease_s: float) -> None:
        with self._state.changed:
            held = self._state.fenced(model, epoch)
            holder = self._holder(held)
            if holder is not None and holder != (owner, epoch):
                raise StaleEpoch(
                    f"{model}: owned by {holder[0]!r} at epoch {holder[1]}, not {owner!r} at {epoch}"
                )
            held.lease = (owner, epoch, self._state.clock.monotonic_s() + lease_s)

    def release(self, model: str, owner: str, epoch: int) -> None:
        with self._state.changed:
            held = self._state.model(model)
            if self._holder(held) == (owner, epoch):
                held.lease = None

    def owner(self, model: str) -> tuple[str, int] | None:
        with self._state.changed:
            return self._holder(self._state.model(model))


class MemoryCommands:
    """Commands in memory."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def push(self, model: str, command: Mapping[str, Plain]) -> None:
        data = require_command(command)
        with self._state.changed:
            self._state.model(model).commands.setdefault(command["id"], data)

    def pending(self, model: str) -> Sequence[Mapping[str, Plain]]:
        with self._state.changed:
            return [decode(data) for data in self._state.model(model).commands.values()]

    def done(self, model: str, ids: Collection[str]) -> None:
        with self._state.changed:
            for command_id in ids:
                self._state.model(model).commands.pop(command_id, None)
