"""A real server over a real store with real learners; only the log is a list."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import pytest

from core.batch import Batch
from core.clock import ManualClock
from core.config import FieldsConfig, LabelFieldsConfig, LearnerConfig, LimitsConfig
from core.plain import objects
from core.records import OutRecord
from core.rollout import Assignment, Rollout
from core.schema import Schema, parse_schema
from learners.registry import build
from serving.main import PredictionServer
from snapshots import codec
from snapshots.open_store import Store, open_store
from snapshots.store import Snapshot

FEATURES = {"distance": "float", "dep": "int", "carrier": "category", "wind": "float?"}
GOOD = {"distance": 1400.0, "dep": 7, "carrier": "UA", "wind": 3.5}
T0 = 1_700_000_000_000


def wait_for(what: Callable[[], bool], seconds: float = 10.0) -> None:
    """Returns once it is so; fails when it has not become so in time."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come to pass")
        time.sleep(0.005)


@dataclass
class World:
    """One model's store, and what a trainer would do to it."""

    store: Store
    model: str = "flights"
    features: dict[str, str] | str = field(default_factory=lambda: dict(FEATURES))
    task: Any = "binary"
    classes: list[Any] = field(default_factory=lambda: [False, True])
    learner: dict[str, Any] = field(default_factory=lambda: {"kind": "linear"})
    fields: FieldsConfig = field(default_factory=FieldsConfig)
    labels: str | None = "flights.labels"
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    epoch: int = 0
    rollout: Rollout = field(default_factory=Rollout)

    def __post_init__(self) -> None:
        epoch = self.store.ownership.acquire(self.model, "tests", 600.0)
        assert epoch is not None
        self.epoch = epoch

    @property
    def schema(self) -> Schema:
        return parse_schema(self.features)

    def train(self, seed: int, rows: int = 60) -> Any:
        """A learner that has learned; other seeds give other answers."""
        rng = np.random.default_rng(seed)
        schema = self.schema
        learner = build(LearnerConfig(**self.learner), schema, self.task, 0, None)
        X = rng.normal(10.0, 3.0, (rows, len(schema.numeric)))
        cells = np.empty((rows, len(schema.categories) + len(schema.anys)), dtype=object)
        for i in range(rows):
            cells[i] = (
                [{"a": float(rng.normal())}] if schema.open else rng.choice(["UA", "AA"], cells.shape[1])
            )
        y: Any = rng.normal(5.0, 1.0, rows)
        if self.task != "regression":
            y = rng.integers(0, len(self.classes), rows)
        n_classes = len(self.classes) if self.task != "regression" else 0
        learner.learn(
            Batch(objects([str(i) for i in range(rows)]), np.full(rows, T0), X, cells, y, n_classes)
        )
        return learner

    def manifest(self, lineages: Sequence[str]) -> dict[str, Any]:
        schema = self.schema
        return {
            "format": 1,
            "model": self.model,
            "created_at_ms": T0,
            "trained_through_ms": T0 - 1_000,
            "turn": 1,
            "parent": 0,
            "task": self.task,
            "schema": schema.state(),
            "schema_digest": schema.digest(),
            "classes": self.classes if self.task != "regression" else [],
            "limits": self.limits.model_dump(),
            "learner": self.learner,
            "seed": 0,
            "events": f"{self.model}.events",
            "labels": self.labels,
            "fields": self.fields.model_dump(),
            "label_fields": LabelFieldsConfig().model_dump(),
            "lineages": {
                name: {
                    "part": f"learner/{name}",
                    "examples": 60,
                    "born_at_ms": T0,
                    "metrics": {},
                    "stage": "x",
                }
                for name in lineages
            },
            "metrics": {"accuracy": 0.75},
            "baselines": {"majority": {"accuracy": 0.5}},
            "drift": {},
            "counters": {"events": 60},
            "lag": {},
        }

    def publish(self, learners: dict[str, Any] | None = None, **changes: Any) -> int:
        """A version that holds these lineages' learners ("a": seed 0)."""
        learners = learners if learners is not None else {"a": self.train(0)}
        parts = {f"learner/{name}": codec.encode(learner.state()) for name, learner in learners.items()}
        parts["fold"] = codec.encode({"anything": 1})
        snapshot = Snapshot(self.model, 0, {**self.manifest(list(learners)), **changes}, parts)
        return self.store.snapshots.publish(snapshot, self.epoch)

    def assign(
        self,
        champion: tuple[str, int],
        canary: tuple[str, int] | None = None,
        shadows: Sequence[tuple[str, int]] = (),
        share: float = 0.0,
    ) -> int:
        """Sets the rollout; returns its revision."""
        new = Rollout(
            self.rollout.revision + 1,
            Assignment(*champion),
            None if canary is None else Assignment(*canary),
            tuple(Assignment(*shadow) for shadow in shadows),
            share,
        )
        self.store.snapshots.set_rollout(self.model, new, self.rollout, self.epoch)
        self.rollout = new
        return new.revision

    def row(self, features: dict[str, Any]) -> Batch:
        """One request's row, made by hand."""
        numbers = [float(features[f.name]) for f in self.schema.numeric]
        cells = np.empty((1, len(self.schema.categories)), dtype=object)
        cells[0] = [features[f.name] for f in self.schema.categories]
        n_classes = len(self.classes) if self.task != "regression" else 0
        return Batch(objects(["e"]), np.array([T0]), np.array([numbers]), cells, None, n_classes)


@dataclass
class Running:
    """A server that answers, and what its log got."""

    server: PredictionServer
    client: httpx.Client
    port: int
    clock: ManualClock
    log: list[tuple[str, OutRecord]]
    log_errors: list[Exception]  # the next appends raise these

    def predict(self, body: Any, model: str = "flights", **options: Any) -> httpx.Response:
        return self.client.post(f"/v1/models/{model}/predict", json=body, **options)

    def at_revision(self, revision: int, model: str = "flights") -> None:
        """Returns once this revision serves."""
        wait_for(lambda: model in self.server.cache.served())
        wait_for(lambda: self.server.cache.get(model).revision >= revision)

    def metric(self, name: str, **labels: str) -> float:
        """A sample of /metrics; 0 where there is none."""
        wanted = set(labels.items())
        for line in self.client.get("/metrics").text.splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] != name:
                continue
            found = dict(part.split("=", 1) for part in head.partition("{")[2].rstrip("}").split(",") if part)
            if wanted <= {(key, text.strip('"')) for key, text in found.items()}:
                return float(value)
        return 0.0


@pytest.fixture(params=["memory", "redis"])
def any_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each kind of store in turn."""
    url = "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


@pytest.fixture
def wait() -> Callable[..., None]:
    return wait_for


@pytest.fixture
def make_world() -> type[World]:
    return World


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    """Starts servers; ends them with the test."""
    ended: list[Callable[[], None]] = []

    def start(store: Store, models: Sequence[str] = ("flights",), **options: Any) -> Running:
        log: list[tuple[str, OutRecord]] = []
        errors: list[Exception] = []

        def append(topic: str, records: Sequence[OutRecord]) -> None:
            if errors:
                raise errors.pop(0)
            log.extend((topic, record) for record in records)

        clock = ManualClock(T0)
        options.setdefault("jitter_s", 0.0)
        server = PredictionServer(store.snapshots, models, append, port=0, clock=clock, **options)
        listening = threading.Event()
        address: list[Any] = []

        def note(host: str, port: int) -> None:
            address.extend((host, port))
            listening.set()

        thread = threading.Thread(target=server.run, args=(note,))
        thread.start()
        assert listening.wait(20.0)
        client = httpx.Client(base_url=f"http://{address[0]}:{address[1]}", timeout=20.0)

        def end() -> None:
            client.close()
            server.stop()
            thread.join(20.0)
            assert not thread.is_alive()

        ended.append(end)
        return Running(server, client, address[1], clock, log, errors)

    yield start
    for end in ended:
        end()
