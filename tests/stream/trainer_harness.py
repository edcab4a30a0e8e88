"""What tests of the trainer share: a process that can die at any call, and what it leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.config import ModelConfig, TrainerConfig
from core.errors import RiverrunError
from core.records import Lane, OutRecord
from snapshots.open_store import Store
from stream.driver.publishing import Published
from stream.driver.recovery import recover
from stream.driver.trainer import Trainer
from stream.fold.effects import Effects
from stream.fold.fold import Fold
from stream.log.log import Log
from tests.stream.fold_harness import Rec, config, event, label, parts_bytes, tombstone

MODEL, PREFIX = "m", "out"
IDLE = 4  # loops without news after which a test's trainer has read everything
SETTINGS = TrainerConfig.model_validate({"max_turn_records": 16, "poll": 1})


class Killed(BaseException):
    """The end of a process: nothing catches it, and nothing is done after it."""


class Life:
    """Counts the calls into the outside world, and ends at the chosen one: before it, or after it was done
    but before anybody knew."""

    def __init__(self, dies_at: int = 0, *, after: bool = False) -> None:
        self.calls = 0
        self.dead = False
        self._dies_at = dies_at
        self._after = after
        self._lock = threading.Lock()

    def port(self, inner: Any) -> Any:
        return _Port(inner, self)

    def store(self, store: Store) -> Any:
        names = ("snapshots", "journal", "ownership", "commands")
        return _Stores(*(self.port(getattr(store, name)) for name in names))

    def call(self, do: Callable[[], Any]) -> Any:
        with self._lock:
            if self.dead:
                raise Killed
            self.calls += 1
            last = self.calls == self._dies_at
            self.dead = last
        if last and not self._after:
            raise Killed
        result = do()
        if last:
            raise Killed
        return result


@dataclass(frozen=True)
class _Stores:
    snapshots: Any
    journal: Any
    ownership: Any
    commands: Any


class _Port:
    def __init__(self, inner: Any, life: Life) -> None:
        self._inner = inner
        self._life = life

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return lambda *args, **kwargs: self._life.call(lambda: method(*args, **kwargs))


class Ticks:
    """A clock that goes on a little whenever it is asked."""

    def __init__(self) -> None:
        self._ticks = 0

    def now_ms(self) -> int:
        self._ticks += 1
        return 1_000_000 + self._ticks

    def monotonic_s(self) -> float:
        self._ticks += 1
        return self._ticks / 100


@dataclass
class Watch:
    """Stops the trainer once nothing new comes; keeps what it saw."""

    stop: Callable[[], None] = lambda: None
    fold: Fold | None = None
    replayed: int = 0
    idle: int = 0
    ready: bool = False
    published_: list[int] = field(default_factory=list)
    troubles: list[RiverrunError] = field(default_factory=list)
    on_step: Callable[[Fold], None] = lambda fold: None
    on_owned: Callable[[], None] = lambda: None
    on_trouble: Callable[[RiverrunError], None] = lambda error: None

    def owned(self, model: str, epoch: int, replayed: int) -> None:
        self.replayed = replayed
        self.ready = True
        self.on_owned()

    def stepped(self, model: str, fold: Fold, effects: Effects, seconds: float) -> None:
        self.fold = fold
        self.idle = 0
        self.on_step(fold)

    def published(self, model: str, published: Published) -> None:
        self.published_.append(published.version)

    def trouble(self, model: str, error: RiverrunError) -> None:
        self.troubles.append(error)
        self.idle = 0
        self.on_trouble(error)

    def alive(self, model: str) -> None:
        self.idle += self.ready  # recovery is no idling
        if self.idle > IDLE:
            self.stop()


@dataclass
class Bench:
    """A log with topics, a store, and trainers that come and go."""

    log: Log
    store: Store
    config: ModelConfig
    settings: TrainerConfig = SETTINGS
    prefix: str = PREFIX

    def train(self, life: Life | None = None, watch: Watch | None = None, log: Any = None) -> Watch:
        """One process from start to end, or to its death (told by `life`)."""
        life, watch = life or Life(), watch or Watch()
        trainer = Trainer(
            MODEL, self.config, self.settings, life.port(log or self.log), life.store(self.store), Ticks(),
            "me", self.prefix, watch,
        )  # fmt: skip
        watch.stop = trainer.stop
        try:
            trainer.run()
        except Killed:
            assert life.dead
        return watch

    def rebuilt(self) -> Fold:
        """The fold from the newest snapshot and the journal."""
        args = (MODEL, self.config, self.log, self.store.snapshots, self.store.journal, 7)
        return recover(*args).fold

    def from_the_log(self) -> Fold:
        """The fold from the journal alone."""
        empty = _NoVersions()
        return recover(MODEL, self.config, self.log, empty, self.store.journal, 5).fold  # type: ignore[arg-type]

    def out(self, topic: str) -> list[tuple[bytes | None, dict[str, bytes]]]:
        """(value, headers) of everything written to a topic of the product."""
        lane = Lane(f"{self.prefix}.{topic}", 0)
        at, end = self.log.bounds(lane)
        rows: list[tuple[bytes | None, dict[str, bytes]]] = []
        while at < end:
            records = self.log.read({lane: at}, 1_000, 1.0)[lane]
            headers = records.headers or [()] * len(records)
            rows += [(v, dict(h)) for v, h in zip(records.values, headers, strict=True)]
            at = records.next_offset
        return rows


class Failing:
    """A port whose calls fail while `when` says so, after they were done where `after` is set."""

    def __init__(
        self, inner: Any, when: Callable[[str, int], bool], error: Exception, *, after: bool = False
    ) -> None:
        self._inner, self._when, self._error, self._after = inner, when, error, after
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            n = self.calls[name] = self.calls.get(name, 0) + 1
            fails = self._when(name, n)
            if fails and not self._after:
                raise self._error
            result = method(*args, **kwargs)
            if fails:
                raise self._error
            return result

        return call


def with_port(store: Store, name: str, port: Any) -> Store:
    return replace(store, **{name: port})


class _NoVersions:
    def versions(self, model: str) -> list[int]:
        return []


def once(
    rows: Sequence[tuple[bytes | None, dict[str, bytes]]],
) -> list[tuple[bytes | None, dict[str, bytes]]]:
    """Without what was sent twice, which riverrun-turn and riverrun-index tell."""
    seen: dict[tuple[bytes, bytes], tuple[bytes | None, dict[str, bytes]]] = {}
    for row in rows:
        known = seen.setdefault((row[1]["riverrun-turn"], row[1]["riverrun-index"]), row)
        assert known == row
    return list(seen.values())


def small_config(**changes: Any) -> ModelConfig:
    base = {"window": {"count": 3}, "predictions": True, "snapshot": {"every": 100, "keep": 1_000}}
    return config(**{**base, **changes})


def traffic(n: int, start: int = 0) -> list[Rec]:
    """Events on two lanes and labels on one, with a bad record and a tombstone now and then."""
    rows: list[Rec] = []
    for i in range(start, start + n):
        at = 10 * i
        rows.append(event(f"n{i}", (i * 7 % 11) - 5.0, at, at=at, lane=i % 2))
        if i % 9 == 4:
            rows.append(Rec(Lane("e", i % 2), b"\xff bad %d" % i, at + 1))
        if i % 17 == 8:
            rows.append(tombstone(f"n{i - 2}", at + 2, lane=i % 2))
        if i >= 3 and i % 5:
            rows.append(label(f"n{i - 3}", i % 3 == 0, at + 3, at=at + 3))
    return rows


def fill(log: Log, records: Sequence[Rec], partitions: int = 2) -> None:
    log.create("e", partitions)
    log.create("l")
    for r in records:
        log.append(r.lane.topic, [OutRecord(r.value, r.key, r.at_ms, partition=r.lane.partition)])


def essence(fold: Fold) -> dict[str, Any]:
    """What must not depend on where turns were cut."""
    parts = parts_bytes(fold)
    return {
        **{name: data for name, data in parts.items() if name != "fold"},
        "counts": [fold.events, fold.labels, fold.examples, fold.learned, fold.dead_letters],
        "join": +fold.join.counts,
        "waiting": sorted(fold.join._waiting),
    }
