"""Whatever a client sends: a 4xx that names what is wrong, never a 500, and nothing reaches a model."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from learners.registry import build

GOOD = {"distance": 1400.0, "dep": 7, "carrier": "UA", "wind": 3.5}
JSON = {"content-type": "application/json"}
DEEP = b"[" * 20_000


def features(**changes: Any) -> bytes:
    return json.dumps({"id": "e1", "features": {**GOOD, **changes}}).encode()


def raw(number: str) -> bytes:
    return features(distance=12345).replace(b"12345", number.encode())


# body, status, reason, field
TABLE: dict[str, tuple[bytes, int, str, str | None]] = {
    "empty": (b"", 400, "malformed", None),
    "not json": (b"{", 400, "malformed", None),
    "two values": (features() + b"{}", 400, "malformed", None),
    "NaN": (raw("NaN"), 400, "malformed", None),
    "Infinity": (raw("-Infinity"), 400, "malformed", None),
    "1e999": (raw("1e999"), 422, "number_out_of_range", "features.distance"),
    "1e31": (raw("1e31"), 422, "number_out_of_range", "features.distance"),
    "4000 digits": (raw("9" * 4000), 422, "number_out_of_range", "features.distance"),
    "inexact": (raw("9007199254740993"), 422, "inexact_number", "features.distance"),
    "bool for float": (features(distance=True), 422, "wrong_type", "features.distance"),
    "text for float": (features(distance="1"), 422, "wrong_type", "features.distance"),
    "null for float": (features(distance=None), 422, "wrong_type", "features.distance"),
    "list for float": (features(distance=[1]), 422, "wrong_type", "features.distance"),
    "fraction for int": (features(dep=7.5), 422, "inexact_number", "features.dep"),
    "float for category": (features(carrier=1.5), 422, "wrong_type", "features.carrier"),
    "long category": (features(carrier="x" * 257), 422, "category_too_long", "features.carrier"),
    "missing": (
        b'{"id": "e", "features": {"dep": 1, "carrier": "x"}}',
        422,
        "missing_field",
        "features.distance",
    ),
    "no features": (b'{"id": "e"}', 422, "missing_field", "features"),
    "null features": (b'{"features": null}', 422, "wrong_type", "features"),
    "list": (b"[]", 422, "wrong_type", None),
    "null": (b"null", 422, "wrong_type", None),
    "deep": (DEEP, 422, "wrong_type", None),
    "deep inside": (b'{"features": ' + DEEP, 422, "wrong_type", "features"),
    "deep aside": (b'{"aside": ' + DEEP, 400, "too_deep", None),
    "not utf-8": (features(carrier="x").replace(b'"x"', b'"\xff"'), 400, "not_utf8", None),
    "not utf-8 aside": (features().replace(b'"id"', b'"\xff": 1, "id"'), 400, "not_utf8", None),
    "lone surrogate": (features(carrier="x").replace(b'"x"', b'"\\ud800"'), 400, "malformed", None),
    "empty id": (features().replace(b'"e1"', b'""'), 422, "bad_id", "id"),
    "long id": (features().replace(b'"e1"', b'"' + b"x" * 129 + b'"'), 422, "bad_id", "id"),
    "id with a line break": (features().replace(b'"e1"', b'"a\\r\\nx: y"'), 422, "bad_id", "id"),
    "id with a path": (features().replace(b'"e1"', b'"../*"'), 422, "bad_id", "id"),
    "id with NUL": (features().replace(b'"e1"', b'"a\\u0000"'), 422, "bad_id", "id"),
    "id not ascii": (features().replace(b'"e1"', '"é"'.encode()), 422, "bad_id", "id"),
    "huge id": (features().replace(b'"e1"', b"9" * 300), 422, "bad_id", "id"),
    "id of float": (features().replace(b'"e1"', b"1.5"), 422, "wrong_type", "id"),
    "no instances": (b'{"instances": []}', 422, "missing_field", "instances"),
    "both": (
        b'{"instances": [{"features": {}}], "id": "x"}',
        422,
        "missing_field",
        "instances[0].features.distance",
    ),
    "instance wrong": (
        b'{"instances": [%b, %b]}' % (features(), features(distance="x")),
        422,
        "wrong_type",
        "instances[1].features.distance",
    ),
    "instance out of range": (
        b'{"instances": [%b, %b]}' % (features(), raw("1e31")),
        422,
        "number_out_of_range",
        "instances[1].features.distance",
    ),
    "instance id": (
        b'{"instances": [%b, %b]}' % (features(), features().replace(b'"e1"', b'"a b"')),
        422,
        "bad_id",
        "instances[1].id",
    ),
}


class Watched:
    """Counts what reaches the model."""

    calls = 0

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def predict(self, batch: Any) -> Any:
        type(self).calls += 1
        return self.inner.predict(batch)


@pytest.fixture
def running(world: Any, serve: Callable[..., Any]) -> Any:
    world.assign(("a", world.publish()))
    running = serve(world.store, build_learner=lambda *args: Watched(build(*args)), max_body_bytes=100_000)
    running.at_revision(1)
    return running


def in_pieces(body: bytes) -> Iterator[bytes]:
    """Sent chunked: such requests take the other way through the server."""
    for i in range(0, len(body), 7_001):
        yield body[i : i + 7_001]


def test_bad_bodies_are_refused_alike_on_both_ways(running: Any) -> None:
    before = Watched.calls
    for name, (body, status, reason, field) in TABLE.items():
        for content in (body, in_pieces(body)):
            answer = running.client.post("/v1/models/flights/predict", content=content, headers=JSON)
            document = answer.json()
            assert (answer.status_code, document["reason"]) == (status, reason), (name, document)
            assert document.get("field") == field, (name, document)
            assert answer.headers["content-type"] == "application/problem+json"
            assert document["type"] == "urn:riverrun:problem:bad-record"
            assert document["status"] == status
            assert document["title"]
            assert document["detail"]
    assert Watched.calls == before
    assert (
        running.client.post("/v1/models/flights/predict", content=features(), headers=JSON).status_code == 200
    )
    refused = sum(
        running.metric("riverrun_refused_requests_total", reason=reason)
        for reason in {row[2] for row in TABLE.values()}
    )
    assert refused == 2 * len(TABLE)


def test_a_body_over_the_limit_is_413_before_it_is_read(running: Any) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(2_000):
            sent += 50_000
            yield b" " * 50_000

    big = running.client.post("/v1/models/flights/predict", content=b" " * 100_001, headers=JSON)
    assert big.status_code == 413
    assert big.headers["connection"] == "close"
    chunked = running.client.post("/v1/models/flights/predict", content=endless(), headers=JSON)
    assert chunked.status_code == 413
    assert sent < 50_000_000
    with socket.create_connection(("127.0.0.1", running.port), timeout=10.0) as raw_socket:
        head = (
            b"POST /v1/models/flights/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999\r\n\r\n"
        )
        raw_socket.sendall(head)
        assert raw_socket.recv(4096).startswith(b"HTTP/1.1 413 ")
    body = features(carrier="x") + b" " * (100_000 - len(features(carrier="x")))
    assert running.client.post("/v1/models/flights/predict", content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        (None, 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ],
)
def test_only_json_is_taken(running: Any, content_type: str | None, status: int) -> None:
    for content in (features(), in_pieces(features())):
        request = running.client.build_request("POST", "/v1/models/flights/predict", content=content)
        request.headers.pop("content-type", None)
        if content_type is not None:
            request.headers["content-type"] = content_type
        assert running.client.send(request).status_code == status


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v1/models/flights/predict", 405, "POST"),
        ("DELETE", "/v1/models/flights", 405, "GET, HEAD"),
        ("POST", "/healthz", 405, "GET, HEAD"),
        ("POST", "/v1/models/other/predict", 404, None),
        ("GET", "/v1/models/other", 404, None),
        ("POST", "/v1/models/other/labels", 404, None),
        ("POST", "/v1/models/flights/retrain", 404, None),
        ("GET", "/", 404, None),
        ("GET", "/v1/models/../../etc/passwd", 404, None),
        ("GET", "/v1/models/%2e%2e", 404, None),
        ("GET", "/v1/models/%00%0d%0a", 404, None),
        ("GET", "/v1/models/" + "x" * 5_000, 404, None),
    ],
)
def test_other_paths_and_methods(
    running: Any, method: str, path: str, status: int, allow: str | None
) -> None:
    answer = running.client.request(method, path, content=b"{}" if method == "POST" else None)
    assert answer.status_code == status
    assert answer.headers.get("allow") == allow
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) < 400


def test_unknown_models_and_ids_add_no_series(running: Any) -> None:
    def series() -> set[str]:
        return {line.rpartition(" ")[0] for line in running.client.get("/metrics").text.splitlines()}

    def visit(i: int) -> None:
        running.client.post(f"/v1/models/m{i}/predict", content=features(), headers=JSON)
        running.client.get(f"/no/{i}")
        body = features().replace(b'"e1"', f'"e{i}"'.encode())
        assert (
            running.client.post("/v1/models/flights/predict", content=body, headers=JSON).status_code == 200
        )

    visit(0)
    series()
    before = series()
    for i in range(1, 150):
        visit(i)
    assert series() == before
    assert running.metric("riverrun_http_requests_total", route="other", status="404") == 300
