"""The trainer of one model: read a turn, journal it, step, deliver its effects, publish now and then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from core.clock import Clock
from core.config import ModelConfig, TrainerConfig
from core.errors import Conflict, RiverrunError
from core.plain import Plain
from core.records import Lane, Turn
from snapshots.store import Commands, Journal, Ownership, SnapshotStore
from stream.driver.courier import Courier
from stream.driver.delivery import Delivery
from stream.driver.lease import Lease
from stream.driver.manifest import describe
from stream.driver.patience import Patience, did
from stream.driver.publishing import Publisher
from stream.driver.reading import LaneReader
from stream.driver.recovery import lanes_of, recover, step
from stream.driver.watcher import Watcher
from stream.fold.fold import Fold
from stream.fold.inputs import LaneInput
from stream.log.log import Log

_log = logging.getLogger("riverrun.trainer")
_LOOK_FOR_LANES_S = 10.0
_LOOK_FOR_COMMANDS_S = 0.1


class Stores(Protocol):
    """The store's ports, as a bundle."""

    @property
    def snapshots(self) -> SnapshotStore: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def ownership(self) -> Ownership: ...
    @property
    def commands(self) -> Commands: ...


@dataclass(slots=True)
class _Owned:
    """What a trainer holds while it owns the model."""

    epoch: int
    fold: Fold
    offsets: dict[Lane, int]
    version: int


class Trainer:
    """Owns a model while it runs. Trouble that passes (a log or a store that is away) is waited out;
    nothing is skipped meanwhile. Every other error ends `run`."""

    def __init__(
        self,
        model: str,
        config: ModelConfig,
        settings: TrainerConfig,
        log: Log,
        stores: Stores,
        clock: Clock,
        owner: str,
        prefix: str,
        watcher: Watcher,
    ) -> None:
        self._model = model
        self._config = config
        self._settings = settings
        self._log = log
        self._stores = stores
        self._clock = clock
        self._watcher = watcher
        self._delivery = Delivery(log, model, config, prefix)
        self._publisher = Publisher(stores.snapshots, stores.journal, model, config.snapshot.keep)
        self._reader: LaneReader | None = None
        self._stop = threading.Event()
        self._patience = Patience(model, watcher, self._stop)
        self._courier = Courier(self._delivery, self._patience)
        self._lease = Lease(
            stores.ownership, model, owner, settings.lease / 1000, clock, watcher, self._patience
        )
        self._dirty = False
        self._published_at_s = -1e9
        self._looked_at_s = 0.0
        self._asked_at_s = -1e9
        self._reason = "first version"

    def stop(self) -> None:
        """Ends `run` after the turn it is in, with a last snapshot. Safe from any thread or handler."""
        self._stop.set()

    def run(self) -> None:
        """Waits for ownership, recovers, trains until `stop`. Raises StaleEpoch where another trainer took
        the model over, and whatever else does not pass by itself."""
        epoch = self._lease.acquire(self._stop)
        if epoch is None:
            return
        try:
            owned = self._patience.until_done(lambda: self._recover(epoch))
            if owned is None:
                return
            self._train(owned)
            self._publish_last(owned)
        finally:
            self._courier.close()
            self._publisher.close()
            self._lease.release(epoch)

    def _train(self, owned: _Owned) -> None:
        while not self._stop.is_set():
            self._lease.keep(owned.epoch)
            self._look_for_lanes(owned)
            inputs = self._next_inputs(owned)
            commands = self._commands()
            if inputs is None or commands is None:
                continue
            if inputs or commands:
                self._turn(owned, inputs, commands)
            self._publish_when_due(owned)

    def _commands(self) -> list[Mapping[str, Plain]] | None:
        """What operators asked for; looked for now and then, since every look is a question to the store."""
        now_s = self._clock.monotonic_s()
        if now_s - self._asked_at_s < _LOOK_FOR_COMMANDS_S:
            return []
        self._asked_at_s = now_s
        return self._patience.until_done(lambda: list(self._stores.commands.pending(self._model)))

    def _turn(
        self, owned: _Owned, inputs: Mapping[Lane, LaneInput], commands: list[Mapping[str, Plain]]
    ) -> None:
        started_s = self._clock.monotonic_s()
        ranges = {lane: (owned.offsets[lane], source.records.next_offset) for lane, source in inputs.items()}
        if not self._courier.settle():
            return
        turn = Turn(owned.fold.turn + 1, ranges, self._clock.now_ms(), tuple(commands))
        if self._patience.until_done(lambda: self._journal(turn, owned.epoch)) is None:
            return
        merged, effects = step(owned.fold, self._config, turn, inputs)
        owned.offsets.update({lane: stop for lane, (_, stop) in ranges.items()})
        self._dirty = True
        self._courier.owe(merged, effects, list(owned.fold.classes.values))
        if commands:
            done = [str(command["id"]) for command in commands]
            self._patience.until_done(lambda: did(self._stores.commands.done, self._model, done))
        if effects.roles_changed:
            self._published_at_s = -1e9
            self._reason = owned.fold.contest.reason
        self._watcher.stepped(self._model, owned.fold, effects, self._clock.monotonic_s() - started_s)

    def _journal(self, turn: Turn, epoch: int) -> bool:
        try:
            self._stores.journal.append(self._model, turn, epoch)
        except Conflict:
            # An earlier try may have been written although its answer was lost.
            written = self._stores.journal.read(self._model, turn.number - 1)
            if len(written) != 1 or not _same(written[0], turn):
                raise
        return True

    def _next_inputs(self, owned: _Owned) -> Mapping[Lane, LaneInput] | None:
        try:
            if self._reader is None:
                self._reader = LaneReader(self._log, self._config, self._settings.max_turn_records)
            return self._reader.read(owned.offsets, self._settings.poll / 1000)
        except RiverrunError as error:
            if not error.retriable:
                raise
            self._reader = None  # what it holds may not be what comes next
            self._patience.pause(error)
            return None

    def _look_for_lanes(self, owned: _Owned) -> None:
        """Partitions that were added are read from their beginning."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_at_s < _LOOK_FOR_LANES_S:
            return
        self._looked_at_s = now_s
        lanes = self._patience.until_done(lambda: lanes_of(self._log, self._config), tries=1)
        new = [lane for lane in lanes or [] if lane not in owned.offsets]
        oldest = self._patience.until_done(lambda: {lane: self._log.bounds(lane)[0] for lane in new}, tries=1)
        if new and oldest:
            owned.offsets.update(oldest)
            _log.info("model %s: new lanes %s", self._model, ", ".join(map(str, new)))

    def _publish_when_due(self, owned: _Owned) -> None:
        self._collect(owned, 0.0)
        now_s = self._clock.monotonic_s()
        due = now_s - self._published_at_s >= self._config.snapshot.every / 1000
        if self._dirty and due and not self._publisher.busy and owned.fold.learned:
            self._publish(owned)

    def _publish(self, owned: _Owned) -> None:
        if not self._courier.settle():
            return
        self._published_at_s = self._clock.monotonic_s()
        self._dirty = False
        fold = owned.fold
        manifest = describe(self._model, self._config, fold, owned.offsets, owned.version, self._lag(owned))
        self._publisher.submit(manifest, fold.parts(), fold.contest.roles(), self._reason, owned.epoch)
        self._reason = "newer version"

    def _lag(self, owned: _Owned) -> int | None:
        """Records in the log that are not in the fold yet; None where the log cannot say now."""
        try:
            return sum(max(self._log.bounds(lane)[1] - offset, 0) for lane, offset in owned.offsets.items())
        except RiverrunError:
            return None

    def _collect(self, owned: _Owned, timeout_s: float | None) -> None:
        try:
            published = self._publisher.result(timeout_s)
        except RiverrunError as error:
            if not error.retriable:
                raise
            self._dirty = True
            self._patience.tell(error)
            return
        if published is not None:
            owned.version = published.version
            self._watcher.published(self._model, published)

    def _publish_last(self, owned: _Owned) -> None:
        self._collect(owned, 30.0)
        if self._dirty and owned.fold.learned:
            self._publish(owned)
            self._collect(owned, 30.0)

    def _recover(self, epoch: int) -> _Owned:
        for topic in self._delivery.topics:
            self._log.create(topic)
        lanes = lanes_of(self._log, self._config)
        stores = self._stores
        found = recover(
            self._model, self._config, self._log, stores.snapshots, stores.journal,
            self._settings.max_turn_records, lambda: self._lease.keep(epoch),
        )  # fmt: skip
        for lane in lanes:
            if lane not in found.offsets:
                found.offsets[lane] = self._log.bounds(lane)[0]
        if found.last is not None:
            self._delivery.deliver(*found.last, found.fold.classes.values)
        served = stores.snapshots.rollout(self._model).champion
        # A crash may have come between a version and its rollout.
        told = found.version == 0 or (served is not None and served.version == found.version)
        self._dirty = found.replayed > 0 or not told
        self._looked_at_s = self._clock.monotonic_s()
        if found.version:
            self._reason = "newer version"
        self._watcher.owned(self._model, epoch, found.replayed)
        _log.info(
            "model %s: owned, epoch %d; from version %d and %d turns of the journal, %d examples learned",
            self._model, epoch, found.version, found.replayed, found.fold.learned,
        )  # fmt: skip
        return _Owned(epoch, found.fold, found.offsets, found.version)


def _same(one: Turn, other: Turn) -> bool:
    rest = [(turn.number, turn.now_ms, list(turn.commands)) for turn in (one, other)]
    return rest[0] == rest[1] and dict(one.ranges) == dict(other.ranges)
