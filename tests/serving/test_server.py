"""The server as a process on a socket: slow and odd clients, draining, descriptions, metrics."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.errors import ConfigError
from serving.main import PredictionServer

GOOD = {"distance": 1400.0, "dep": 7, "carrier": "UA", "wind": 3.5}
BODY = json.dumps({"id": "e1", "features": GOOD}).encode()
PATH = b"/v1/models/flights/predict"
ROOT = Path(__file__).resolve().parents[2]
Serve = Callable[..., Any]


def request(body: bytes = BODY, version: bytes = b"1.1", extra: bytes = b"") -> bytes:
    head = b"POST %b HTTP/%b\r\nhost: x\r\ncontent-length: %d\r\n%b\r\n" % (PATH, version, len(body), extra)
    return head + body


def talk(port: int, *pieces: bytes, answers: int = 1) -> list[tuple[int, dict[str, str], bytes]]:
    """Sends the pieces a little apart, and reads so many answers, or up to the end."""
    got: list[tuple[int, dict[str, str], bytes]] = []
    with socket.create_connection(("127.0.0.1", port), timeout=10.0) as raw:
        for i, piece in enumerate(pieces):
            if i:
                time.sleep(0.05)
            raw.sendall(piece)
        stream = raw.makefile("rb")
        while len(got) < answers:
            line = stream.readline()
            if not line:
                break
            headers: dict[str, str] = {}
            while (header := stream.readline().strip()) != b"":
                name, _, value = header.decode().partition(":")
                headers[name.lower()] = value.strip()
            status = int(line.split()[1])
            got.append((status, headers, stream.read(int(headers.get("content-length", 0)))))
        if answers > len(got) or (got and got[-1][1].get("connection") == "close"):
            assert stream.read() == b""
    return got


@pytest.fixture
def running(world: Any, serve: Serve) -> Any:
    world.assign(("a", world.publish()))
    running = serve(world.store, body_timeout_s=0.4, max_connections=100)
    running.at_revision(1)
    return running


def test_both_ways_through_the_server_answer_the_same(running: Any) -> None:
    (short,) = talk(running.port, request())
    chunked = b"POST %b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
        PATH,
        len(BODY),
        BODY,
    )
    (long,) = talk(running.port, chunked)
    (expecting,) = talk(running.port, request(extra=b"expect: 100-continue\r\n"), answers=2)[1:]
    (split,) = talk(running.port, request()[:30], request()[30:110], request()[110:])
    assert short[0] == long[0] == expecting[0] == split[0] == 200
    assert short[2] == long[2] == expecting[2] == split[2]
    same = [{k: v for k, v in one[1].items() if k != "date"} for one in (short, long, expecting, split)]
    assert all(headers == same[0] for headers in same)
    assert all("date" in one[1] for one in (short, long))


def test_connections_stay_open_or_close_as_asked(running: Any) -> None:
    pipelined = talk(running.port, request() * 5, answers=5)
    assert [status for status, _, _ in pipelined] == [200] * 5
    mixed = talk(
        running.port, request() + b"GET /v1/models/flights HTTP/1.1\r\nhost: x\r\n\r\n" + request(), answers=3
    )
    assert ["predictions" in json.loads(body) for _, _, body in mixed] == [True, False, True]
    (closing,) = talk(running.port, request(extra=b"connection: close\r\n"))
    assert (closing[0], closing[1]["connection"]) == (200, "close")
    (old,) = talk(running.port, request(version=b"1.0"))
    assert (old[0], old[1]["connection"]) == (200, "close")
    (head,) = talk(running.port, b"HEAD /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")[:1]
    assert head[0] == 200


def test_each_request_of_a_connection_is_judged_by_its_own_headers(running: Any) -> None:
    chunked = b"POST %b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
        PATH,
        len(BODY),
        BODY,
    )
    text = request(extra=b"content-type: text/plain\r\n")
    answers = talk(
        running.port,
        request(),
        request(),
        chunked,
        request(),
        text,
        request(),
        text,
        request(b"{}"),
        answers=8,
    )
    assert [status for status, _, _ in answers] == [200, 200, 200, 200, 415, 200, 415, 422]
    (bare,) = talk(running.port, b"POST %b HTTP/1.1\r\n\r\n" % PATH)
    assert bare[0] == 400


def test_what_is_no_http_is_refused(running: Any) -> None:
    for nonsense in (
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    ):
        (answer,) = talk(running.port, nonsense)
        assert answer[0] == 400
    smuggled = (
        b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
        % PATH
    )
    assert talk(running.port, smuggled)[0][0] == 400
    twice = request(extra=b"content-length: 3\r\n")
    assert talk(running.port, twice)[0][0] == 400
    assert talk(running.port, request())[0][0] == 200


def test_slow_clients_are_cut_off_and_others_served(running: Any) -> None:
    sockets = [socket.create_connection(("127.0.0.1", running.port), timeout=10.0) for _ in range(40)]
    starts = [
        b"",
        b"POST ",
        request()[:60],
        request()[:-5],
        request()[:-5].replace(b"host: x", b"expect: 100-continue"),
    ]
    starts.append(b"POST %b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab" % PATH)
    try:
        for i, raw in enumerate(sockets):
            raw.sendall(starts[i % len(starts)])
        began = time.monotonic()
        assert running.predict({"features": GOOD}).status_code == 200
        for i, raw in enumerate(sockets):
            data = b""
            while piece := raw.recv(4096):
                data += piece
            assert b"HTTP/1.1 408 " in data, starts[i % len(starts)]
        assert time.monotonic() - began < 8.0
    finally:
        for raw in sockets:
            raw.close()
    assert running.predict({"features": GOOD}).status_code == 200


def test_endless_headers_are_cut_off(running: Any) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=10.0) as raw:
        raw.sendall(b"POST %b HTTP/1.1\r\n" % PATH)
        data = b""
        try:
            for _ in range(200):
                raw.sendall(b"x-%b: y\r\n" % (b"a" * 1_000))
            data = raw.recv(4096)
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert data == b"" or data.startswith(b"HTTP/1.1 431 ")
    assert running.predict({"features": GOOD}).status_code == 200


def test_idle_connections_are_closed_and_busy_ones_kept(world: Any, serve: Serve) -> None:
    world.assign(("a", world.publish()))
    running = serve(world.store, keep_alive_s=1)
    running.at_revision(1)
    with socket.create_connection(("127.0.0.1", running.port), timeout=10.0) as raw:
        for _ in range(8):
            raw.sendall(request())
            assert raw.recv(4096).startswith(b"HTTP/1.1 200")
            time.sleep(0.2)
        began = time.monotonic()
        assert raw.recv(4096) == b""
        assert time.monotonic() - began < 5.0


def test_too_many_connections_are_told_so(world: Any, serve: Serve) -> None:
    world.assign(("a", world.publish()))
    running = serve(world.store, max_connections=5)
    running.at_revision(1)
    running.client.close()
    sockets = [socket.create_connection(("127.0.0.1", running.port), timeout=10.0) for _ in range(5)]
    try:
        time.sleep(0.1)
        assert talk(running.port, request())[0][0] == 503
    finally:
        for raw in sockets:
            raw.close()


def test_models_are_described_from_their_manifests(running: Any, world: Any) -> None:
    listed = running.client.get("/v1/models").json()
    details = running.client.get("/v1/models/flights").json()
    role = {
        "role": "champion",
        "version": 1,
        "lineage": "a",
        "created_at": "2023-11-14T22:13:20.000Z",
        "trained_through": "2023-11-14T22:13:19.000Z",
        "staleness_s": 0.0,
        "examples": 60,
        "metrics": {},
    }
    row = {"model": "flights", "ready": True, "task": "binary", "revision": 1, "roles": [role]}
    assert listed == {"models": [row]}
    assert details == {
        **row,
        "canary_share": 0.0,
        "problems": {},
        "versions": [1],
        "features": world.features,
        "classes": [False, True],
        "events": "flights.events",
        "labels": "flights.labels",
        "as_of_version": 1,
        "metrics": {"accuracy": 0.75},
        "baselines": {"majority": {"accuracy": 0.5}},
        "drift": {},
        "counters": {"events": 60},
        "lag": {},
    }


def test_metrics_are_counted_and_well_formed(running: Any) -> None:
    for _ in range(3):
        running.predict({"features": GOOD})
    running.predict({"instances": [{"features": GOOD}] * 4})
    running.predict({"features": {}})
    running.client.get("/nowhere")
    running.clock.advance(7.5)
    text = running.client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(name.startswith("riverrun_") for name in families)
    assert running.metric("riverrun_predictions_total", model="flights", role="champion", outcome="ok") == 7
    template = "/v1/models/{model}/predict"
    assert running.metric("riverrun_http_requests_total", route=template, status="200") == 4
    assert running.metric("riverrun_http_requests_total", route=template, status="422") == 1
    assert running.metric("riverrun_predict_latency_seconds_count", model="flights") == 4
    assert 0 < running.metric("riverrun_predict_latency_seconds_sum", model="flights") < 4
    buckets = [
        s.value for s in families["riverrun_predict_latency_seconds"].samples if s.name.endswith("_bucket")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 4
    assert running.metric("riverrun_model_version", model="flights", role="champion") == 1
    assert running.metric("riverrun_rollout_revision", model="flights") == 1
    assert running.metric("riverrun_staleness_seconds", model="flights", role="champion") == 7.5
    assert running.metric("riverrun_model_loads_total", model="flights", outcome="ok") == 1
    labels = {key for family in families.values() for sample in family.samples for key in sample.labels}
    assert labels <= {"model", "role", "outcome", "reason", "route", "status", "topic", "le"}


def test_an_address_that_is_taken_is_a_configuration_error(store: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = PredictionServer(store.snapshots, ["flights"], lambda _t, _r: None, port=port)
        with pytest.raises(ConfigError, match=str(port)):
            server.run()


def test_sigterm_answers_what_has_begun_and_ends_cleanly(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys, threading, time
        from serving.main import run_server
        from snapshots.open_store import open_store
        store = open_store("memory://")
        def append(topic, records): pass
        run_server(store.snapshots, ["flights"], append, port=0,
                   on_listening=lambda host, port: print(port, flush=True))
        store.close()
        print("closed", flush=True)
        """
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        port = int(process.stdout.readline())
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 503
        with socket.create_connection(("127.0.0.1", port), timeout=10.0) as raw:
            raw.sendall(request()[:-5])
            time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(("127.0.0.1", port), timeout=1.0)
            raw.sendall(request()[-5:])
            data = b""
            while piece := raw.recv(4096):
                data += piece
            assert data.startswith(b"HTTP/1.1 503 ")  # no version yet, but an answer
            assert b"connection: close" in data
        assert process.stdout.read() == "closed\n"
        assert process.wait(10.0) == 0
        assert process.stderr.read() == ""


def test_a_burst_of_many_threads_is_counted_exactly(running: Any) -> None:
    def burst() -> None:
        with httpx.Client(base_url=running.client.base_url, timeout=20.0) as client:
            for _ in range(40):
                assert client.post(PATH.decode(), content=BODY).status_code == 200

    threads = [threading.Thread(target=burst) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert running.metric("riverrun_predictions_total", outcome="ok") == 320
