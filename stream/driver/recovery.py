"""From the newest snapshot and the journal to the fold that would have been."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.config import ModelConfig
from core.errors import ConfigError, CorruptSnapshot, OffsetOutOfRange
from core.records import Lane, Turn
from snapshots.codec import decode
from snapshots.store import Journal, Snapshot, SnapshotStore
from stream.driver.manifest import read_offsets
from stream.driver.reading import LaneReader
from stream.fold.effects import Effects
from stream.fold.fold import Fold
from stream.fold.inputs import LaneInput, TurnInput, merge
from stream.log.log import Log


@dataclass(slots=True)
class Recovered:
    """A fold ready to go on: where its next records are, which version it came from, and the last turn
    that was journaled, whose effects may not have been delivered."""

    fold: Fold
    offsets: dict[Lane, int]
    version: int
    replayed: int
    last: tuple[TurnInput, Effects] | None


def lanes_of(log: Log, config: ModelConfig) -> list[Lane]:
    """The lanes of the model's topics. Raises UnknownTopic."""
    topics = [config.events] if config.labels is None else [config.events, config.labels]
    return [lane for topic in topics for lane in log.lanes(topic)]


def step(
    fold: Fold, config: ModelConfig, turn: Turn, sources: Mapping[Lane, LaneInput]
) -> tuple[TurnInput, Effects]:
    """One turn of the fold, from what was read for it."""
    inputs = merge(turn, sources, nothing=fold.nothing, labels_apart=config.labels is not None)
    return inputs, fold.step(inputs)


def recover(
    model: str,
    config: ModelConfig,
    log: Log,
    store: SnapshotStore,
    journal: Journal,
    limit: int,
    beat: Callable[[], object] = lambda: None,
) -> Recovered:
    """The fold as the journal's last turn left it. A snapshot that cannot be read gives way to the one
    before it. `beat` is called before each turn, as recovery may outlast a lease. Raises ConfigError where
    the configuration no longer fits the state, OffsetOutOfRange where the log lost records that are
    needed, LogUnavailable, StoreUnavailable."""
    fold, offsets, version = _load(model, config, store)
    turns = journal.read(model, fold.turn)
    reader = LaneReader(log, config, limit)
    last: tuple[TurnInput, Effects] | None = None
    for turn in turns:
        beat()
        if turn.number != fold.turn + 1:
            raise CorruptSnapshot(
                f"model {model}: after turn {fold.turn} the journal goes on with turn {turn.number}"
            )
        sources = reader.exactly(turn.ranges, 30.0)
        last = step(fold, config, turn, sources)
        offsets.update({lane: stop for lane, (_, stop) in turn.ranges.items()})
    _check_kept(log, offsets)
    return Recovered(fold, offsets, version, len(turns), last)


def _load(model: str, config: ModelConfig, store: SnapshotStore) -> tuple[Fold, dict[Lane, int], int]:
    problem: CorruptSnapshot | None = None
    for version in reversed(store.versions(model)):
        try:
            snapshot = store.load(model, version)
            _check_same(model, config, snapshot)
            fold = Fold.from_parts(config, {name: decode(data) for name, data in snapshot.parts.items()})
            return fold, read_offsets(snapshot.manifest), version
        except CorruptSnapshot as error:
            problem = error
    if problem is not None:
        raise problem
    return Fold(config), {}, 0


def _check_same(model: str, config: ModelConfig, snapshot: Snapshot) -> None:
    """Raises ConfigError where the model is not the one that was learned."""
    manifest = snapshot.manifest
    pairs = {
        "task": (config.task, manifest["task"]),
        "features": (config.schema_().digest(), manifest["schema_digest"]),
        "classes": (config.class_values() or manifest["classes"], manifest["classes"]),
        "learner": (config.learner.model_dump(), manifest["learner"]),
        "events": (config.events, manifest["events"]),
        "labels": (config.labels, manifest["labels"]),
    }
    changed = [name for name, (now, then) in pairs.items() if now != then]
    if changed:
        raise ConfigError(
            f"models.{model}: {', '.join(changed)} not as in version {snapshot.version}; "
            "give the changed model another name, or remove its versions"
        )


def _check_kept(log: Log, offsets: Mapping[Lane, int]) -> None:
    for lane, offset in offsets.items():
        oldest, following = log.bounds(lane)
        if not oldest <= offset <= following:
            raise OffsetOutOfRange(
                f"{lane}: the next record to learn is {offset}, the log has {oldest} up to {following}: "
                "records were deleted, or the topic was made anew"
            )
