"""The trainer of one model: read a turn, journal it, step, deliver its effects, publish now and then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from core.clock import Clock
from core.config import ModelConfig, TrainerConfig
from core.errors import Conflict, RiverrunError, StaleEpoch
from core.plain import Plain
from core.records import Lane, Turn
from snapshots.store import Commands, Journal, Ownership, SnapshotStore
from stream.driver.delivery import Delivery
from stream.driver.manifest import describe
from stream.driver.publishing import Published, Publisher
from stream.driver.reading import LaneReader
from stream.driver.recovery import lanes_of, recover, step
from stream.fold.effects import Effects
from stream.fold.fold import Fold
from stream.fold.inputs import LaneInput, TurnInput
from stream.log.log import Log

T = TypeVar("T")
_log = logging.getLogger("riverrun.trainer")
_LOOK_FOR_LANES_S = 10.0
_LOOK_FOR_COMMANDS_S = 0.1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


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


class Watcher(Protocol):
    """Who looks on: metrics, progress. Called in the training thread."""

    def owned(self, model: str, epoch: int, replayed: int) -> None: ...
    def stepped(self, model: str, fold: Fold, effects: Effects, seconds: float) -> None: ...
    def published(self, model: str, published: Published) -> None: ...
    def trouble(self, model: str, error: RiverrunError) -> None: ...
    def alive(self, model: str) -> None: ...


@dataclass(slots=True)
class _Owned:
    """What a trainer holds while it owns the model."""

    epoch: int
    fold: Fold
    offsets: dict[Lane, int]
    version: int


@dataclass(frozen=True, slots=True)
class _Owed:
    """Effects on their way."""

    deliver: Callable[[], None]
    running: Future[None]


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
        self._owner = owner
        self._watcher = watcher
        self._delivery = Delivery(log, model, config, prefix)
        self._publisher = Publisher(stores.snapshots, stores.journal, model, config.snapshot.keep)
        self._reader: LaneReader | None = None
        self._courier = ThreadPoolExecutor(1, thread_name_prefix="riverrun-deliver")
        self._owed: _Owed | None = None
        self._stop = threading.Event()
        self._dirty = False
        self._published_at_s = -1e9
        self._renewed_at_s = 0.0
        self._looked_at_s = 0.0
        self._asked_at_s = -1e9
        self._reason = "first version"

    def stop(self) -> None:
        """Ends `run` after the turn it is in, with a last snapshot. Safe from any thread or handler."""
        self._stop.set()

    def run(self) -> None:
        """Waits for ownership, recovers, trains until `stop`. Raises StaleEpoch where another trainer took
        the model over, and whatever else does not pass by itself."""
        epoch = self._acquire()
        if epoch is None:
            return
        try:
            owned = self._patiently(lambda: self._recover(epoch))
            if owned is None:
                return
            self._train(owned)
            self._publish_last(owned)
        finally:
            self._courier.shutdown()
            self._publisher.close()
            self._release(epoch)

    def _train(self, owned: _Owned) -> None:
        while not self._stop.is_set():
            self._keep_lease(owned.epoch)
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
        return self._patiently(lambda: list(self._stores.commands.pending(self._model)))

    def _turn(
        self, owned: _Owned, inputs: Mapping[Lane, LaneInput], commands: list[Mapping[str, Plain]]
    ) -> None:
        started_s = self._clock.monotonic_s()
        ranges = {lane: (owned.offsets[lane], source.records.next_offset) for lane, source in inputs.items()}
        if not self._settle():
            return
        turn = Turn(owned.fold.turn + 1, ranges, self._clock.now_ms(), tuple(commands))
        if self._patiently(lambda: self._journal(turn, owned.epoch)) is None:
            return
        merged, effects = step(owned.fold, self._config, turn, inputs)
        owned.offsets.update({lane: stop for lane, (_, stop) in ranges.items()})
        self._dirty = True
        self._owe(merged, effects, list(owned.fold.classes.values))
        if commands:
            done = [str(command["id"]) for command in commands]
            self._patiently(lambda: _did(self._stores.commands.done, self._model, done))
        if effects.roles_changed:
            self._published_at_s = -1e9
            self._reason = owned.fold.contest.reason
        self._watcher.stepped(self._model, owned.fold, effects, self._clock.monotonic_s() - started_s)

    def _owe(self, inputs: TurnInput, effects: Effects, classes: list[Any]) -> None:
        """Delivers the turn's effects while the next one is read."""
        if effects.dead_letters or effects.alerts or (self._config.predictions and effects.predicted):
            deliver = partial(self._delivery.deliver, inputs, effects, classes)
            self._owed = _Owed(deliver, self._courier.submit(deliver))

    def _settle(self) -> bool:
        """Waits until the effects of the turn before are in the log. No turn is journaled and no snapshot
        taken before: so what a crash may have left undelivered is what the last journaled turn brought
        about, and recovery delivers that again. A stop gives up after a few tries: False then."""
        owed = self._owed
        if owed is None:
            return True
        try:
            owed.running.result()
        except RiverrunError as error:
            if not error.retriable:
                raise
            self._trouble(error)
            if self._patiently(lambda: _did(owed.deliver), tries_after_stop=3) is None:
                return False
        self._owed = None
        return True

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
            self._pause(error, _FIRST_PAUSE_S)
            return None

    def _look_for_lanes(self, owned: _Owned) -> None:
        """Partitions that were added are read from their beginning."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_at_s < _LOOK_FOR_LANES_S:
            return
        self._looked_at_s = now_s
        lanes = self._patiently(lambda: lanes_of(self._log, self._config), tries=1)
        new = [lane for lane in lanes or [] if lane not in owned.offsets]
        oldest = self._patiently(lambda: {lane: self._log.bounds(lane)[0] for lane in new}, tries=1)
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
        if not self._settle():
            return
        self._published_at_s = self._clock.monotonic_s()
        self._dirty = False
        fold = owned.fold
        manifest = describe(self._model, self._config, fold, owned.offsets, owned.version)
        self._publisher.submit(manifest, fold.parts(), fold.contest.roles(), self._reason, owned.epoch)
        self._reason = "newer version"

    def _collect(self, owned: _Owned, timeout_s: float | None) -> None:
        try:
            published = self._publisher.result(timeout_s)
        except RiverrunError as error:
            if not error.retriable:
                raise
            self._dirty = True
            self._trouble(error)
            return
        if published is not None:
            owned.version = published.version
            self._watcher.published(self._model, published)

    def _publish_last(self, owned: _Owned) -> None:
        self._collect(owned, 30.0)
        if self._dirty and owned.fold.learned:
            self._publish(owned)
            self._collect(owned, 30.0)

    def _acquire(self) -> int | None:
        """The epoch, once nobody else owns the model; None where told to stop first."""
        said = False
        lease_s = self._settings.lease / 1000
        while not self._stop.is_set():
            self._watcher.alive(self._model)
            epoch = self._patiently(
                lambda: self._stores.ownership.acquire(self._model, self._owner, lease_s) or 0
            )
            if epoch:
                self._renewed_at_s = self._clock.monotonic_s()
                return epoch
            if not said and epoch == 0:
                _log.info("model %s: another trainer owns it; standing by", self._model)
                said = True
            self._stop.wait(min(0.5, lease_s / 4))
        return None

    def _recover(self, epoch: int) -> _Owned:
        for topic in self._delivery.topics:
            self._log.create(topic)
        lanes = lanes_of(self._log, self._config)
        stores = self._stores
        found = recover(
            self._model, self._config, self._log, stores.snapshots, stores.journal,
            self._settings.max_turn_records, lambda: self._keep_lease(epoch),
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
        self._watcher.owned(self._model, epoch, found.replayed)
        _log.info(
            "model %s: owned, epoch %d; from version %d and %d turns of the journal, %d examples learned",
            self._model, epoch, found.version, found.replayed, found.fold.learned,
        )  # fmt: skip
        return _Owned(epoch, found.fold, found.offsets, found.version)

    def _keep_lease(self, epoch: int) -> None:
        self._watcher.alive(self._model)
        now_s = self._clock.monotonic_s()
        if now_s - self._renewed_at_s > self._settings.lease / 3000:
            lease_s = self._settings.lease / 1000
            renew = self._stores.ownership.renew
            if self._patiently(lambda: _did(renew, self._model, self._owner, epoch, lease_s)):
                self._renewed_at_s = now_s

    def _release(self, epoch: int) -> None:
        try:
            self._stores.ownership.release(self._model, self._owner, epoch)
        except RiverrunError as error:
            self._trouble(error)

    def _patiently(self, do: Callable[[], T], tries: int = 0, tries_after_stop: int = 0) -> T | None:
        """Does it, again and again while it fails in a way that passes; None where told to stop meanwhile
        (or after so many tries)."""
        pause_s, tried = _FIRST_PAUSE_S, 0
        while True:
            try:
                return do()
            except RiverrunError as error:
                tried += 1
                if isinstance(error, StaleEpoch) or not error.retriable:
                    raise
                if self._stop.is_set() and tried > tries_after_stop:
                    return None
                self._pause(error, pause_s)
                if tried == tries:
                    return None
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _pause(self, error: RiverrunError, seconds: float) -> None:
        self._trouble(error)
        self._watcher.alive(self._model)
        self._stop.wait(seconds)

    def _trouble(self, error: RiverrunError) -> None:
        _log.warning("model %s: %s; trying again", self._model, error)
        self._watcher.trouble(self._model, error)


def _same(one: Turn, other: Turn) -> bool:
    rest = [(turn.number, turn.now_ms, list(turn.commands)) for turn in (one, other)]
    return rest[0] == rest[1] and dict(one.ranges) == dict(other.ranges)


def _did(do: Callable[..., None], *arguments: object) -> bool:
    """Does it; True tells it from what was given up."""
    do(*arguments)
    return True
