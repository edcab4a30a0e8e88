"""A client that asks for predictions over HTTP while learning goes on."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np


@dataclass(slots=True)
class Served:
    """What the client saw."""

    requests: int = 0
    errors: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)
    roles: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def percentile_ms(self, q: float) -> float | None:
        """The latency that so many percent of the requests stayed below."""
        return round(float(np.percentile(self.latencies_ms, q)), 2) if self.latencies_ms else None


class Client:
    """Asks for one event after the other, at a steady rate, on one connection, in a thread of its own."""

    def __init__(self, host: str, port: int, model: str, rate: float) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=10)
        self._path = f"/v1/models/{model}/predict"
        self._pause_s = 1 / rate
        self._lock = threading.Lock()
        self._bodies: list[bytes] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="riverrun-client", daemon=True)
        self.served = Served()

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def offer(self, events: Sequence[bytes]) -> None:
        """The newest events: what it asks about from now on."""
        with self._lock:
            self._bodies = [_request(value) for value in events[:200]]

    def stop(self) -> Served:
        """Ends, and tells what it saw."""
        self._stop.set()
        self._thread.join()
        self._connection.close()
        return self.served

    def _run(self) -> None:
        i = 0
        while not self._stop.wait(self._pause_s):
            with self._lock:
                bodies = self._bodies
            if bodies:
                self._ask(bodies[i % len(bodies)])
                i += 1

    def _ask(self, body: bytes) -> None:
        served = self.served
        served.requests += 1
        started_s = time.perf_counter()
        try:
            self._connection.request("POST", self._path, body, {"content-type": "application/json"})
            answer = self._connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            self._complain(repr(error))
            return
        served.latencies_ms.append((time.perf_counter() - started_s) * 1000)
        if answer.status != 200:
            self._complain(f"{answer.status} {data[:200]!r}")
            return
        told = msgspec.json.decode(data)
        served.versions.add(told["version"])
        served.roles[told["role"]] += 1

    def _complain(self, text: str) -> None:
        self.served.errors += 1
        if len(self.served.complaints) < 5:
            self.served.complaints.append(text)


def _request(event: bytes) -> bytes:
    told = msgspec.json.decode(event)
    return msgspec.json.encode({"id": told["id"], "features": told["features"]})
