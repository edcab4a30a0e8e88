"""Publishes snapshots beside the training thread, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from core.errors import Conflict, StoreUnavailable
from core.plain import State
from core.rollout import Assignment, Rollout
from snapshots.codec import encode
from snapshots.store import Journal, Snapshot, SnapshotStore
from stream.fold.contest import Roles


@dataclass(frozen=True, slots=True)
class Published:
    """A version that is out."""

    version: int
    turn: int
    size_bytes: int
    metrics: Mapping[str, float | None]


class Publisher:
    """Encodes and writes in one thread of its own; the trainer hands over state that nobody changes."""

    def __init__(self, store: SnapshotStore, journal: Journal, model: str, keep: int) -> None:
        self._store = store
        self._journal = journal
        self._model = model
        self._keep = keep
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="riverrun-publish")
        self._running: Future[Published] | None = None

    @property
    def busy(self) -> bool:
        """Whether a snapshot is still being written."""
        return self._running is not None and not self._running.done()

    def submit(self, manifest: State, parts: dict[str, State], roles: Roles, reason: str, epoch: int) -> None:
        """Starts to write; call `result` before the next one."""
        self._running = self._pool.submit(self._publish, manifest, parts, roles, reason, epoch)

    def result(self, timeout_s: float | None = 0.0) -> Published | None:
        """What was published since the last call; None where nothing is, or it still runs. Raises what
        went wrong: StaleEpoch, StoreUnavailable."""
        running = self._running
        if running is None or (timeout_s == 0.0 and not running.done()):
            return None
        self._running = None
        try:
            return running.result(timeout_s)
        except TimeoutError:
            raise StoreUnavailable(f"model {self._model}: a version is still being written") from None

    def close(self) -> None:
        """Waits for what runs and ends the thread."""
        self._pool.shutdown(wait=True)

    def _publish(
        self, manifest: State, parts: dict[str, State], roles: Roles, reason: str, epoch: int
    ) -> Published:
        blobs = {name: encode(state) for name, state in parts.items()}
        version = self._store.publish(Snapshot(self._model, 0, manifest, blobs), epoch)
        self._assign(roles, version, reason, epoch)
        if self._store.prune(self._model, self._keep, epoch):
            # Turns before the oldest version kept rebuild nothing any more.
            oldest = self._store.load(self._model, self._store.versions(self._model)[0], parts=())
            self._journal.trim(self._model, oldest.manifest["turn"], epoch)
        return Published(version, manifest["turn"], sum(map(len, blobs.values())), manifest["metrics"])

    def _assign(self, roles: Roles, version: int, reason: str, epoch: int) -> None:
        def at(lineage: str) -> Assignment:
            return Assignment(lineage, version)

        change = Rollout(
            champion=at(roles.champion),
            canary=None if roles.canary is None else at(roles.canary),
            shadows=tuple(map(at, roles.shadows)),
            canary_share=roles.canary_share,
            reason=reason,
        )
        retrying(lambda: self._set(change, epoch))

    def _set(self, change: Rollout, epoch: int) -> None:
        now = self._store.rollout(self._model)
        self._store.set_rollout(self._model, replace(change, revision=now.revision + 1), now, epoch)


def retrying(write: Callable[[], None], tries: int = 5) -> None:
    """Does a compare-and-set again where somebody else was first."""
    for left in range(tries, 0, -1):
        try:
            return write()
        except Conflict:
            if left == 1:
                raise
    return None
