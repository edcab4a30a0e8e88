"""Which versions serve: swapped when they are ready, kept when the next ones fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest

from core.batch import Batch, Predictions
from core.config import LearnerConfig
from core.errors import CorruptSnapshot, StoreUnavailable
from core.rollout import Rollout
from learners.registry import build
from serving import model_cache
from snapshots.open_store import Store
from snapshots.store import Change, Snapshot

GOOD = {"distance": 1400.0, "dep": 7, "carrier": "UA", "wind": 3.5}
Serve = Callable[..., Any]


class Spied:
    """A snapshot store that notes loads, and fails or changes them on demand."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.loads: list[tuple[int, tuple[str, ...]]] = []
        self.errors: dict[int, Exception] = {}  # by version
        self.extra: list[Change] = []  # pushed before whatever the store pushes

    def load(self, model: str, version: int, parts: Collection[str] | None = None) -> Snapshot:
        self.loads.append((version, tuple(parts or ())))
        if version in self.errors:
            raise self.errors[version]
        snapshot: Snapshot = self.inner.load(model, version, parts)
        return snapshot

    def versions(self, model: str) -> Sequence[int]:
        if 0 in self.errors:
            raise self.errors[0]
        versions: Sequence[int] = self.inner.versions(model)
        return versions

    def watch(self, models: Collection[str], poll_s: float = 1.0) -> Iterator[Change]:
        for change in self.inner.watch(models, poll_s):
            yield change
            while self.extra:
                yield self.extra.pop(0)


@pytest.fixture
def spied(store: Store) -> Any:
    return Spied(store.snapshots)


@pytest.fixture
def serve_spied(spied: Spied, serve: Serve) -> Callable[..., Any]:
    class Around:
        snapshots = spied

    return lambda **options: serve(Around, **options)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_cache, "RETRY_S", (0.02, 0.05))


def version_served(running: Any) -> int:
    return int(running.predict({"id": "x", "features": GOOD}).json()["version"])


def test_without_a_version_it_is_alive_but_not_ready_and_says_why(
    any_store: Store, serve: Serve, make_world: Any
) -> None:
    world = make_world(any_store)
    running = serve(any_store)
    assert running.client.get("/healthz").status_code == 200
    for answer in (
        running.client.get("/readyz"),
        running.predict({"features": GOOD}),
        running.client.post("/v1/models/flights/events", json={"id": "e", "features": GOOD}),
        running.client.get("/v1/models/flights"),
    ):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert "no version" in answer.json()["detail"]
    listed = running.client.get("/v1/models").json()["models"]
    assert [(row["model"], row["ready"]) for row in listed] == [("flights", False)]
    assert running.predict({"features": GOOD}, "other").status_code == 404
    world.assign(("a", world.publish()))
    running.at_revision(1)
    assert running.client.get("/readyz").status_code == 200
    assert running.predict({"features": GOOD}).status_code == 200


def test_every_configured_model_must_be_ready(store: Store, serve: Serve, make_world: Any) -> None:
    one, two = make_world(store, model="one"), make_world(store, model="two")
    one.assign(("a", one.publish()))
    running = serve(store, ["one", "two"])
    running.at_revision(1, "one")
    answer = running.client.get("/readyz")
    assert answer.status_code == 503
    assert "two" in answer.json()["detail"]
    assert "one:" not in answer.json()["detail"]
    two.assign(("a", two.publish()))
    running.at_revision(1, "two")
    assert running.client.get("/readyz").status_code == 200


def test_a_newer_version_is_pushed_and_only_its_learner_is_read(
    world: Any, spied: Spied, serve_spied: Callable[..., Any]
) -> None:
    first = world.publish({"a": world.train(0), "b": world.train(1)})
    world.assign(("a", first))
    running = serve_spied()
    running.at_revision(1)
    second = world.publish({"a": world.train(2), "b": world.train(3)})
    running.at_revision(world.assign(("a", second)))
    assert version_served(running) == second
    assert spied.loads == [(first, ("learner/a",)), (second, ("learner/a",))]


def test_a_change_of_roles_reads_nothing_again(
    world: Any, spied: Spied, serve_spied: Callable[..., Any]
) -> None:
    version = world.publish({"a": world.train(0), "b": world.train(1)})
    world.assign(("a", version), shadows=[("b", version)])
    running = serve_spied()
    running.at_revision(1)
    reads = len(spied.loads)
    running.at_revision(world.assign(("a", version), ("b", version), share=0.5))
    running.at_revision(world.assign(("b", version)))
    assert running.server.cache.get("flights").champion.lineage == "b"
    assert len(spied.loads) == reads == 2


FAILURES: dict[str, dict[str, Any]] = {
    "a later format": {"format": 99},
    "another model": {"model": "else"},
    "another schema": {"schema_digest": "0" * 64},
    "no such lineage": {"lineages": {}},
    "no task": {"task": None},
    "another learner": {"learner": {"kind": "nonsense"}},
    "code of its own": {"learner": {"kind": "json:loads"}},
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_version_that_does_not_load_leaves_the_old_one_serving(
    any_store: Store, serve: Serve, make_world: Any, wait: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(any_store)
    good = world.publish()
    world.assign(("a", good))
    running = serve(any_store)
    running.at_revision(1)
    bad = world.publish(**FAILURES[name])
    world.assign(("a", bad))
    wait(lambda: running.metric("riverrun_model_loads_total", outcome="corrupt") >= 1)
    assert version_served(running) == good
    assert running.client.get("/readyz").status_code == 200
    assert f"version {bad}" in caplog.text
    better = world.publish({"a": world.train(5)})
    running.at_revision(world.assign(("a", better)))
    assert version_served(running) == better


class Nonsense:
    """A learner that answers what is no number."""

    def predict(self, batch: Batch) -> Predictions:
        return Predictions(np.full((len(batch), 2), np.nan))


def test_a_learner_that_answers_no_number_never_serves(world: Any, serve: Serve, wait: Any) -> None:
    world.assign(("a", world.publish()))
    built: list[Any] = []

    def build_some(*args: Any) -> Any:
        built.append(Nonsense() if built else build(*args))
        return built[-1]

    running = serve(world.store, build_learner=build_some)
    running.at_revision(1)
    world.assign(("a", world.publish({"a": world.train(1)})))
    wait(lambda: running.metric("riverrun_model_loads_total", outcome="corrupt") >= 1)
    assert version_served(running) == 1


def test_a_factory_is_called_only_where_the_configuration_names_it(world: Any, serve: Serve) -> None:
    world.assign(("a", world.publish(learner={"kind": f"{__name__}:factory"})))
    refusing = serve(world.store)
    running = serve(world.store, factories=[f"{__name__}:factory"], build_learner=build_from_here)
    running.at_revision(1)
    assert version_served(running) == 1
    assert "not among those configured" in refusing.client.get("/readyz").json()["detail"]


def build_from_here(config: LearnerConfig, *args: Any) -> Any:
    """As the registry does, for a module that it cannot import."""
    assert config.kind == f"{__name__}:factory"
    return build(LearnerConfig(kind="linear"), *args)


def test_the_first_version_failing_is_told_by_readyz(
    world: Any, spied: Spied, serve_spied: Callable[..., Any], wait: Any
) -> None:
    version = world.publish()
    spied.errors[version] = CorruptSnapshot("part learner/a: digest differs")
    world.assign(("a", version))
    running = serve_spied()
    wait(lambda: "digest differs" in running.client.get("/readyz").json().get("detail", ""))
    assert running.predict({"features": GOOD}).status_code == 503
    del spied.errors[version]
    running.at_revision(1)
    assert version_served(running) == version


def test_a_store_that_is_away_is_tried_again(
    world: Any, spied: Spied, serve_spied: Callable[..., Any], wait: Any
) -> None:
    world.assign(("a", world.publish()))
    running = serve_spied()
    running.at_revision(1)
    second = world.publish({"a": world.train(1)})
    spied.errors[second] = spied.errors[0] = StoreUnavailable("no Redis at redis://x")
    revision = world.assign(("a", second))
    wait(lambda: running.metric("riverrun_model_loads_total", outcome="failed") >= 2)
    assert version_served(running) == 1
    details = running.client.get("/v1/models/flights")
    assert (details.status_code, details.json()["versions"]) == (200, None)
    spied.errors.clear()
    running.at_revision(revision)
    assert version_served(running) == second
    assert running.client.get("/v1/models/flights").json()["versions"] == [1, second]


def test_a_canary_that_does_not_load_keeps_its_older_version_or_is_left_out(
    world: Any, spied: Spied, serve_spied: Callable[..., Any]
) -> None:
    first = world.publish({"a": world.train(0), "b": world.train(1)})
    second = world.publish({"a": world.train(2), "b": world.train(3), "c": world.train(4)})
    world.assign(("a", first), ("b", first), share=1.0)
    running = serve_spied()
    running.at_revision(1)
    spied.errors[second] = CorruptSnapshot("part learner/b: digest differs")
    revision = world.assign(("a", first), ("b", second), share=1.0)
    running.at_revision(revision)
    answer = running.predict({"id": "x", "features": GOOD}).json()
    assert (answer["role"], answer["version"]) == ("canary", first)
    revision = world.assign(("a", first), ("c", second), share=1.0)
    running.at_revision(revision)
    answer = running.predict({"id": "x", "features": GOOD}).json()
    assert (answer["role"], answer["version"]) == ("champion", first)
    assert "canary" in running.client.get("/v1/models/flights").json()["problems"]
    spied.errors.clear()


def test_a_canary_of_another_schema_answers_nobody(world: Any, serve: Serve, make_world: Any) -> None:
    first = world.publish({"a": world.train(0), "b": world.train(1)})
    world.features = {**world.features, "humidity": "float?"}
    second = world.publish({"b": world.train(1)})
    world.assign(("a", first), ("b", second), share=1.0)
    running = serve(world.store)
    running.at_revision(1)
    assert running.predict({"id": "x", "features": GOOD}).json()["role"] == "champion"
    problems = running.client.get("/v1/models/flights").json()["problems"]
    assert "another schema" in problems["canary"]


def test_a_new_schema_comes_with_its_champion(world: Any, serve: Serve) -> None:
    world.assign(("a", world.publish()))
    running = serve(world.store)
    running.at_revision(1)
    world.features = {**world.features, "humidity": "float"}
    running.at_revision(world.assign(("a", world.publish())))
    assert running.predict({"features": GOOD}).json()["field"] == "features.humidity"
    assert running.predict({"features": {**GOOD, "humidity": 0.5}}).status_code == 200


def test_a_rollout_older_than_one_seen_is_never_taken(
    world: Any, spied: Spied, serve_spied: Callable[..., Any], wait: Any
) -> None:
    first = world.publish()
    world.assign(("a", first))
    old = world.rollout
    running = serve_spied()
    running.at_revision(1)
    second = world.publish({"a": world.train(1)})
    spied.extra = [Change("flights", old), Change("flights", Rollout()), Change("someone-else", old)]
    running.at_revision(world.assign(("a", second)))
    wait(lambda: running.metric("riverrun_rollout_regressions_total", model="flights") == 1)
    assert version_served(running) == second


def test_overtaken_revisions_are_skipped(world: Any, spied: Spied, serve_spied: Callable[..., Any]) -> None:
    gate, entered = threading.Event(), threading.Event()

    def slow(*args: Any) -> Any:
        entered.set()
        assert gate.wait(10.0)
        return build(*args)

    versions = [world.publish({"a": world.train(seed)}) for seed in range(5)]
    world.assign(("a", versions[0]))
    running = serve_spied(build_learner=slow)
    assert entered.wait(10.0)
    for version in versions[1:]:
        world.assign(("a", version))
    gate.set()
    running.at_revision(5)
    assert version_served(running) == versions[-1]
    assert len(spied.loads) < 5


def test_every_answer_is_of_one_version_while_a_hundred_are_swapped_in(
    any_store: Store, serve: Serve, make_world: Any
) -> None:
    world = make_world(any_store)
    learners = [world.train(seed, rows=40) for seed in range(5)]
    want = [learner.predict(world.row(GOOD)).scores[0, 1] for learner in learners]
    first = world.publish({"a": learners[0]})
    world.assign(("a", first))
    running = serve(any_store)
    running.at_revision(1)
    stop, wrong, seen, asked = threading.Event(), [], set(), [0, 0, 0]

    def hammer(place: int) -> None:
        body = {"instances": [{"features": GOOD}] * (3, 1, 400)[place]}
        with httpx.Client(base_url=running.client.base_url, timeout=20.0) as client:
            latest = 0
            while not stop.is_set():
                answer = client.post("/v1/models/flights/predict", json=body)
                asked[place] += 1
                if answer.status_code != 200:
                    wrong.append(answer.text)
                    continue
                data = answer.json()
                expected = want[(data["version"] - first) % 5]
                if any(p["probabilities"]["true"] != expected for p in data["predictions"]):
                    wrong.append(f"version {data['version']} answers like another")
                if data["version"] < latest:
                    wrong.append("back to an older version")
                latest = data["version"]
                seen.add(latest)

    threads = [threading.Thread(target=hammer, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    try:
        for i in range(1, 101):
            version = world.publish({"a": learners[i % 5]})
            running.at_revision(world.assign(("a", version)))
            if i % 10 == 0:
                any_store.snapshots.prune("flights", 2, world.epoch)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert len(seen) > 20
    assert min(asked) > 20
