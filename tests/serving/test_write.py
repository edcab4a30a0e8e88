"""Events and labels over HTTP: what the log gets, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from core.config import FieldsConfig
from core.errors import LogError, LogUnavailable, UnknownTopic
from snapshots.open_store import Store

GOOD = {"distance": 1400.0, "dep": 7, "carrier": "UA", "wind": 3.5}
Serve = Callable[..., Any]


@pytest.fixture
def running(world: Any, serve: Serve) -> Any:
    world.assign(("a", world.publish()))
    running = serve(world.store)
    running.at_revision(1)
    return running


def post(running: Any, kind: str, body: Any, model: str = "flights") -> Any:
    return running.client.post(f"/v1/models/{model}/{kind}", json=body)


def test_events_and_labels_are_written_as_the_log_has_them(running: Any) -> None:
    event = {"id": "e1", "ts": 1_700_000_000_000, "features": GOOD}
    answer = post(running, "events", event)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 1})
    label = {"id": "e1", "ts": "2023-11-14T23:00:00Z", "label": True}
    assert post(running, "labels", label).json() == {"accepted": 1}
    (first_topic, first), (second_topic, second) = running.log
    assert (first_topic, first.key, json.loads(first.value)) == ("flights.events", b"e1", event)
    assert (second_topic, second.key, json.loads(second.value)) == ("flights.labels", b"e1", label)
    assert first.timestamp_ms is None  # when it arrived is the log's to say


def test_many_are_accepted_together_in_order(running: Any) -> None:
    records = [{"id": f"e{i}", "features": {**GOOD, "dep": i}} for i in range(300)]
    assert post(running, "events", {"records": records}).json() == {"accepted": 300}
    assert [json.loads(record.value) for _, record in running.log] == records
    assert running.metric("riverrun_accepted_records_total", topic="events") == 300


def test_values_reach_the_log_digit_for_digit(running: Any) -> None:
    features = '"distance": 1400.10, "dep": 7, "carrier": "Zürich", "more": 123456789012345678901234567890'
    body = f'{{"id": "e1", "features": {{{features}}}}}'
    headers = {"content-type": "application/json"}
    answer = running.client.post("/v1/models/flights/events", content=body.encode(), headers=headers)
    assert answer.status_code == 202
    value = running.log[0][1].value.decode()
    for text in ("1400.10", "Zürich", "123456789012345678901234567890"):
        assert text in value


BAD_EVENTS: dict[str, tuple[Any, str, str | None]] = {
    "no id": ({"features": GOOD}, "missing_field", "id"),
    "null id": ({"id": None, "features": GOOD}, "missing_field", "id"),
    "bad id": ({"id": "a\nb", "features": GOOD}, "bad_id", "id"),
    "no features": ({"id": "a"}, "missing_field", "features"),
    "wrong feature": ({"id": "a", "features": {**GOOD, "dep": "x"}}, "wrong_type", "features.dep"),
    "huge feature": (
        {"id": "a", "features": {**GOOD, "distance": 1e300}},
        "number_out_of_range",
        "features.distance",
    ),
    "bad ts": ({"id": "a", "ts": "yesterday", "features": GOOD}, "bad_timestamp", "ts"),
    "ts without zone": ({"id": "a", "ts": "2024-01-01T00:00:00", "features": GOOD}, "bad_timestamp", "ts"),
    "ts of fractions": ({"id": "a", "ts": 1.5, "features": GOOD}, "bad_timestamp", "ts"),
    "ts far away": ({"id": "a", "ts": 10**18, "features": GOOD}, "bad_timestamp", "ts"),
    "no records": ({"records": []}, "wrong_type", "records"),
}
BAD_LABELS: dict[str, tuple[Any, str, str | None]] = {
    "no label": ({"id": "a"}, "missing_field", "label"),
    "null label": ({"id": "a", "label": None}, "missing_field", "label"),
    "text for bool": ({"id": "a", "label": "true"}, "wrong_type", "label"),
    "number for bool": ({"id": "a", "label": 1}, "wrong_type", "label"),
    "no id": ({"label": True}, "missing_field", "id"),
}


@pytest.mark.parametrize(("kind", "table"), [("events", BAD_EVENTS), ("labels", BAD_LABELS)])
def test_bad_records_are_refused_and_nothing_is_written(
    running: Any, kind: str, table: dict[str, Any]
) -> None:
    fine = {"id": "ok", "features": GOOD} if kind == "events" else {"id": "ok", "label": False}
    for name, (record, reason, field) in table.items():
        tries: list[tuple[Any, str | None]] = [(record, field)]
        if "records" not in record:
            tries.append(({"records": [fine, record]}, field and f"records[1].{field}"))
        for body, path in tries:
            answer = post(running, kind, body)
            document = answer.json()
            assert answer.status_code == 422, (name, document)
            assert (document["reason"], document.get("field")) == (reason, path), (name, document)
    assert running.log == []
    assert post(running, kind, fine).status_code == 202


def test_too_deep_or_too_large_is_refused(world: Any, serve: Serve) -> None:
    world.limits = world.limits.model_copy(update={"max_bytes": 500})
    world.assign(("a", world.publish()))
    running = serve(world.store)
    running.at_revision(1)
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    answer = post(running, "events", {"id": "a", "features": {**GOOD, "more": deep}})
    assert (answer.status_code, answer.json()["reason"]) == (400, "too_deep")
    answer = post(running, "events", {"id": "a", "features": {**GOOD, "more": "x" * 500}})
    assert (answer.status_code, answer.json()["reason"]) == (413, "too_large")
    assert running.log == []


def test_fields_go_where_the_log_has_them(store: Store, serve: Serve, make_world: Any) -> None:
    world = make_world(
        store,
        features={"distance": "float at trip.km", "carrier": "category"},
        fields=FieldsConfig(id="meta.id", ts="meta.at", features="", label="late"),
        labels=None,
    )
    world.assign(("a", world.publish()))
    running = serve(store)
    running.at_revision(1)
    features = {"distance": 3.5, "carrier": "UA", "note": "kept"}
    event = {"id": "e1", "ts": 5, "features": features, "label": False}
    assert post(running, "events", event).status_code == 202
    assert json.loads(running.log[0][1].value) == {
        "trip": {"km": 3.5},
        "carrier": "UA",
        "note": "kept",
        "late": False,
        "meta": {"id": "e1", "at": 5},
    }
    without = {key: value for key, value in event.items() if key != "label"}
    assert post(running, "events", without).status_code == 202
    assert "late" not in json.loads(running.log[1][1].value)
    assert post(running, "events", {**event, "label": "no"}).json()["field"] == "label"
    answer = post(running, "labels", {"id": "e1", "label": True})
    assert answer.status_code == 404
    assert "/events" in answer.json()["detail"]


def test_labels_of_other_tasks(store: Store, serve: Serve, make_world: Any) -> None:
    prices = make_world(store, model="prices", task="regression", classes=[], labels="prices.labels")
    kinds = make_world(store, model="kinds", task="multiclass", classes=["a", "b"], labels="kinds.labels")
    sides = make_world(store, model="sides", classes=["left", "right"], labels="sides.labels")
    for one in (prices, kinds, sides):
        one.assign(("a", one.publish()))
    running = serve(store, ["prices", "kinds", "sides"])
    for model in ("prices", "kinds", "sides"):
        running.at_revision(1, model)
    cases = [
        ("prices", 1.5, 202),
        ("prices", 2, 202),
        ("prices", True, 422),
        ("prices", 1e300, 422),
        ("kinds", "c", 202),  # a class that is new: the trainer's to judge
        ("kinds", "x" * 300, 422),
        ("kinds", 1.5, 422),
        ("sides", "left", 202),
        ("sides", "up", 422),
    ]
    for model, label, status in cases:
        answer = post(running, "labels", {"id": "x", "label": label}, model)
        assert answer.status_code == status, (model, label, answer.text)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (LogUnavailable("no broker at kafka://x"), 503, "log-unavailable"),
        (UnknownTopic("no topic flights.events"), 503, "no-topic"),
        (LogError("refused"), 502, "log-refused"),
    ],
)
def test_a_log_that_fails_is_told_and_the_next_try_goes_through(
    running: Any, error: Exception, status: int, code: str
) -> None:
    running.log_errors.append(error)
    event = {"id": "e1", "features": GOOD}
    answer = post(running, "events", event)
    assert answer.status_code == status
    assert answer.json()["type"] == f"urn:riverrun:problem:{code}"
    assert answer.headers.get("retry-after") == ("1" if status == 503 else None)
    assert running.predict({"features": GOOD}).status_code == 200
    assert post(running, "events", event).status_code == 202
    assert len(running.log) == 1


def test_the_first_events_come_before_the_first_version(world: Any, serve: Serve) -> None:
    """Else nobody could send over HTTP what the first version is to learn from."""
    manifest = world.manifest([])
    running = serve(world.store, contracts={"flights": manifest})
    assert running.predict({"features": GOOD}).status_code == 503
    assert post(running, "events", {"id": "e1", "features": GOOD}).status_code == 202
    assert post(running, "labels", {"id": "e1", "label": True}).status_code == 202
    assert post(running, "events", {"id": "e2", "features": {**GOOD, "dep": "x"}}).status_code == 422
    assert [topic for topic, _ in running.log] == ["flights.events", "flights.labels"]
