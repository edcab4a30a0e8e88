"""What the predictor answers: roles, labels, staleness."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import LearnerConfig, LimitsConfig
from core.errors import BadRecord
from core.plain import State
from core.schema import parse_schema
from learners.learner import Learner
from learners.registry import build
from rollout.routing import route
from serving.interface import Interface
from serving.loading import rfc3339
from snapshots.open_store import Store

Serve = Callable[..., Any]
GOOD = {"distance": 1400.0, "dep": 7, "carrier": "UA", "wind": 3.5}


def test_an_answer_says_who_answered_from_what_and_with_which_probabilities(
    any_store: Store, serve: Serve, make_world: Callable[..., Any]
) -> None:
    world = make_world(any_store)
    learner = world.train(0)
    version = world.publish({"a": learner})
    world.assign(("a", version))
    running = serve(any_store)
    running.at_revision(1)
    running.clock.advance(2.5)
    answer = running.predict({"id": "e1", "features": GOOD})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert "date" in answer.headers
    body = answer.json()
    no, yes = learner.predict(world.row(GOOD)).scores[0].tolist()
    assert body == {
        "model": "flights",
        "version": version,
        "role": "champion",
        "trained_through": "2023-11-14T22:13:19.000Z",
        "staleness_s": 2.5,
        "predictions": [
            {"id": "e1", "label": yes > no, "probabilities": {"false": no, "true": yes}},
        ],
    }
    assert datetime.fromisoformat(body["trained_through"]).timestamp() == 1_699_999_999.0


def test_keys_in_any_order_give_the_same_answer(world: Any, serve: Serve) -> None:
    world.assign(("a", world.publish()))
    running = serve(world.store)
    running.at_revision(1)
    turned = dict(reversed(list(GOOD.items())))
    first = running.predict({"id": "e1", "features": GOOD}).json()
    assert running.predict({"features": turned, "id": "e1"}).json() == first
    extra = {"weather": [1, {"deep": None}], **turned}  # what the schema does not name is not looked at
    assert running.predict({"id": "e1", "features": extra, "ts": 5}).json() == first


def test_instances_get_one_answer_each_and_an_id_where_they_have_none(world: Any, serve: Serve) -> None:
    learner = world.train(0)
    world.assign(("a", world.publish({"a": learner})))
    running = serve(world.store)
    running.at_revision(1)
    rows = [{**GOOD, "distance": 100.0 * i, "dep": i, "carrier": "UAX"[i % 3]} for i in range(500)]
    instances = [{"id": i, "features": row} for i, row in enumerate(rows)] + [{"features": GOOD}]
    body = running.predict({"instances": instances}).json()
    assert [p["id"] for p in body["predictions"][:500]] == [str(i) for i in range(500)]
    assert len(body["predictions"][500]["id"]) == 32
    for row, prediction in zip(rows, body["predictions"], strict=False):
        want = learner.predict(world.row(row)).scores[0].tolist()
        assert list(prediction["probabilities"].values()) == pytest.approx(want, rel=1e-12)


def test_a_missing_optional_feature_is_missing_for_the_model_too(world: Any, serve: Serve) -> None:
    learner = world.train(0)
    world.assign(("a", world.publish({"a": learner})))
    running = serve(world.store)
    running.at_revision(1)
    want = learner.predict(world.row({**GOOD, "wind": float("nan")})).scores[0, 1]
    without = {k: v for k, v in GOOD.items() if k != "wind"}
    for features in (without, {**GOOD, "wind": None}):
        body = running.predict({"features": features}).json()
        assert body["predictions"][0]["probabilities"]["true"] == want


def test_regression_answers_values_and_multiclass_its_own_labels(
    store: Store, serve: Serve, make_world: Any
) -> None:
    prices = make_world(store, model="prices", task="regression", classes=[])
    kinds = make_world(store, model="kinds", task="multiclass", classes=["red", "green", "blue"])
    digits = make_world(store, model="digits", task="multiclass", classes=[3, 7])
    for one in (prices, kinds, digits):
        one.assign(("a", one.publish()))
    running = serve(store, ["prices", "kinds", "digits"])
    for model in ("prices", "kinds", "digits"):
        running.at_revision(1, model)
    value = running.predict({"id": "p", "features": GOOD}, "prices").json()["predictions"][0]
    assert value == {"id": "p", "value": prices.train(0).predict(prices.row(GOOD)).scores[0, 0]}
    kind = running.predict({"features": GOOD}, "kinds").json()["predictions"][0]
    want = kinds.train(0).predict(kinds.row(GOOD)).scores[0]
    assert kind["label"] == ["red", "green", "blue"][int(want.argmax())]
    assert kind["probabilities"] == dict(zip(["red", "green", "blue"], want.tolist(), strict=True))
    digit = running.predict({"features": GOOD}, "digits").json()["predictions"][0]
    assert digit["label"] in (3, 7)
    assert set(digit["probabilities"]) == {"3", "7"}


def test_a_model_that_has_learned_no_class_answers_no_label(
    store: Store, serve: Serve, make_world: Any
) -> None:
    world = make_world(store, task="multiclass", classes=[])
    learner = build(LearnerConfig(kind="linear"), world.schema, "multiclass", 0, None)
    world.assign(("a", world.publish({"a": learner}, trained_through_ms=0)))
    running = serve(store)
    running.at_revision(1)
    body = running.predict({"id": "x", "features": GOOD}).json()
    assert body["predictions"] == [{"id": "x", "label": None, "probabilities": {}}]
    assert body["trained_through"] is None


def test_a_river_model_takes_open_features(store: Store, serve: Serve, make_world: Any) -> None:
    world = make_world(
        store,
        features="any",
        learner={
            "kind": "river",
            "steps": ["preprocessing.StandardScaler", "linear_model.LogisticRegression"],
        },
    )
    world.assign(("a", world.publish()))
    running = serve(store)
    running.at_revision(1)
    body = running.predict({"id": "x", "features": {"a": 1.5, "unseen": 2}}).json()
    assert 0.0 < body["predictions"][0]["probabilities"]["true"] < 1.0
    assert running.predict({"features": {"a": [1]}}).status_code == 422


def test_the_canary_answers_its_share_of_ids_and_always_the_same_ones(world: Any, serve: Serve) -> None:
    a, b = world.train(0), world.train(1)
    version = world.publish({"a": a, "b": b})
    world.assign(("a", version), ("b", version), share=0.3)
    running = serve(world.store)
    running.at_revision(1)
    want = {
        "champion": a.predict(world.row(GOOD)).scores[0, 1],
        "canary": b.predict(world.row(GOOD)).scores[0, 1],
    }
    assert want["champion"] != want["canary"]
    roles: dict[str, str] = {}
    for _ in range(2):
        for i in range(200):
            body = running.predict({"id": f"e{i}", "features": GOOD}).json()
            assert body["predictions"][0]["probabilities"]["true"] == want[body["role"]]
            assert roles.setdefault(f"e{i}", body["role"]) == body["role"] == route(f"e{i}", 0.3, "b")
    assert 30 <= list(roles.values()).count("canary") <= 90


def test_a_request_of_many_goes_as_a_whole_where_its_first_id_goes(world: Any, serve: Serve) -> None:
    version = world.publish({"a": world.train(0), "b": world.train(1)})
    world.assign(("a", version), ("b", version), share=0.5)
    running = serve(world.store)
    running.at_revision(1)
    ids = {
        role: next(f"e{i}" for i in range(99) if route(f"e{i}", 0.5, "b") == role)
        for role in ("canary", "champion")
    }
    for first, second in (("canary", "champion"), ("champion", "canary")):
        instances = [{"id": ids[first], "features": GOOD}, {"id": ids[second], "features": GOOD}]
        body = running.predict({"instances": instances}).json()
        assert body["role"] == first
        assert len({p["probabilities"]["true"] for p in body["predictions"]}) == 1


class Broken:
    """A learner that fails once it serves: raises, or answers what is no number."""

    def __init__(self, inner: Learner, how: str) -> None:
        self.inner, self.how, self.calls = inner, how, 0

    def predict(self, batch: Any) -> Any:
        self.calls += 1
        answer = self.inner.predict(batch)
        if self.calls > 1:  # the first is the warm-up
            if self.how == "raises":
                raise KeyError("nothing you would guess")
            answer.scores[:] = np.nan
        return answer


@pytest.mark.parametrize("how", ["raises", "nan"])
def test_the_champion_covers_a_canary_that_fails(world: Any, serve: Serve, how: str) -> None:
    version = world.publish({"a": world.train(0), "b": world.train(1)})
    world.assign(("a", version), ("b", version), share=1.0)
    marked = world.train(1).state()

    def build_some(config: Any, schema: Any, task: Any, seed: int, state: State | None) -> Any:
        learner = build(config, schema, task, seed, state)
        assert state is not None
        return Broken(learner, how) if np.array_equal(state["weights"], marked["weights"]) else learner

    running = serve(world.store, build_learner=build_some)
    running.at_revision(1)
    body = running.predict({"id": "x", "features": GOOD}).json()
    assert body["role"] == "champion"
    assert running.metric("riverrun_predictions_total", role="canary", outcome="failed") == 1
    assert running.metric("riverrun_predictions_total", role="champion", outcome="ok") == 1


@pytest.mark.parametrize("how", ["raises", "nan"])
def test_a_champion_that_fails_is_a_503_that_tells_nothing_of_the_code(
    world: Any, serve: Serve, how: str
) -> None:
    world.assign(("a", world.publish()))
    running = serve(world.store, build_learner=lambda *args: Broken(build(*args), how))
    running.at_revision(1)
    answer = running.predict({"id": "x", "features": GOOD})
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:riverrun:problem:model-failed"
    assert "KeyError" not in answer.text
    assert running.metric("riverrun_predictions_total", role="champion", outcome="failed") == 1


def test_staleness_is_asked_for_and_kept(world: Any, serve: Serve) -> None:
    world.assign(("a", world.publish()))
    running = serve(world.store)
    running.at_revision(1)
    running.clock.advance(30.0)
    body = {"id": "x", "features": GOOD}
    assert running.predict(body, headers={"riverrun-max-staleness": "30s"}).status_code == 200
    answer = running.predict(body, headers={"riverrun-max-staleness": "29s"})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "30.000 s old" in answer.json()["detail"]
    for wrong in ("", "soon", "-3s", "1e9", "30"):
        answer = running.predict(body, headers={"riverrun-max-staleness": wrong})
        assert answer.status_code == 400, wrong
        assert answer.json()["field"] == "riverrun-max-staleness"


def test_the_quick_reader_of_one_row_agrees_with_the_general_one(make_world: Any, store: Store) -> None:
    features = {"f": "float", "g": "float?", "i": "int", "b": "bool", "c": "category", "d": "category?"}
    world = make_world(store, features=features)
    interface = Interface(world.schema, LimitsConfig())
    slow = Interface(world.schema, LimitsConfig())
    slow._fast = lambda _row: None
    numbers: list[Any] = [0, -1, 1.5, 3.0, 2**53 - 1, 2**53, 2**53 + 1, 1e29, 1e31, 10**400, None, True, "1"]
    texts: list[Any] = ["", "x", "é" * 256, "y" * 257, 5, None, True, 1.5]
    base: dict[str, Any] = {"f": 1.0, "g": 2.0, "i": 3, "b": True, "c": "x", "d": "y"}
    tried = 0
    for key in features:
        for value in numbers + texts:
            body = json.dumps({"id": "e", "features": {**base, key: value}}).encode()
            outcomes = []
            for reader in (interface, slow):
                try:
                    _, X, cells = reader.read(body)
                    outcomes.append((X.tolist(), cells.tolist()))
                except Exception as error:
                    outcomes.append((type(error), str(error)))
            assert repr(outcomes[0]) == repr(outcomes[1]), (key, value)
            tried += 1
    assert tried == len(features) * (len(numbers) + len(texts))


_NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60)


@settings(max_examples=150, deadline=None)
@given(
    data=st.fixed_dictionaries(
        {
            "f": _NUMBERS,
            "g": _NUMBERS | st.none(),
            "i": st.integers(-(2**54), 2**54),
            "b": st.booleans(),
            "c": st.text(max_size=5) | st.integers(),
            "d": st.text(max_size=300) | st.none(),
        }
    ),
    columns=st.sets(st.sampled_from("fgibcd"), min_size=1),
)
def test_one_row_is_read_as_a_batch_of_one(data: dict[str, Any], columns: set[str]) -> None:
    kinds = {"f": "float", "g": "float?", "i": "int", "b": "bool", "c": "category", "d": "category?"}
    schema = parse_schema({name: kinds[name] for name in sorted(columns)})
    interface = Interface(schema, LimitsConfig())
    features = {name: data[name] for name in columns}
    outcomes = []
    for body in ({"id": "e", "features": features}, {"instances": [{"id": "e", "features": features}]}):
        try:
            _, X, cells = interface.read(json.dumps(body).encode())
            assert X.flags.carray
            assert X.dtype == np.float64
            outcomes.append((X.shape, X.tobytes(), cells.tolist()))
        except BadRecord as error:
            outcomes.append((error.reason, error.detail.removeprefix("instances[0].")))
    assert outcomes[0] == outcomes[1]


def test_times_are_shown_in_utc() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
