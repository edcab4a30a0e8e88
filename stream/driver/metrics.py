"""The trainer's numbers for Prometheus, and whether it is alive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

from core.clock import Clock
from core.errors import ConfigError, RiverrunError
from stream.driver.publishing import Published
from stream.fold.effects import Effects
from stream.fold.fold import Fold

_TURN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class TrainerMetrics:
    """Watches trainers. Names and label values come from closed sets; models are those configured."""

    def __init__(self, registry: CollectorRegistry, clock: Clock, stalled_after_s: float = 30.0) -> None:
        self._clock = clock
        self._stalled_after_s = stalled_after_s
        self._alive_at_s: dict[str, float] = {}
        self._owned: set[str] = set()
        self._outcomes: dict[tuple[str, str], int] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"riverrun_{name}", text, ("model", *labels), registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"riverrun_{name}", text, ("model", *labels), registry=registry)

        self._records = counter("records", "Good records by kind: event, label, example, learned", "kind")
        self._dead = counter("dead_letters", "Refused records", "reason")
        self._joined = counter(
            "join_outcomes", "Records that made no example, by what became of them", "outcome"
        )
        self._drifts = counter("drifts", "Alarms of drift detectors")
        self._retrainings = gauge("retrainings", "Lineages born after the first")
        self._snapshots = counter("snapshots", "Versions published")
        self._snapshot_bytes = gauge("snapshot_bytes", "Size of the newest version")
        self._turn_seconds = Histogram(
            "riverrun_turn_seconds", "Time a turn took", ("model",), buckets=_TURN_BUCKETS, registry=registry
        )
        self._waiting = gauge("waiting_records", "Events without a label, labels without an event", "kind")
        self._quality = gauge("quality", "The champion's prequential metrics", "metric")
        self._trained_through = gauge("trained_through_seconds", "Event time of the newest example learned")
        self._epoch = gauge("ownership_epoch", "Epoch of this trainer's lease; 0 while it stands by")
        self._replayed = gauge("replayed_turns", "Turns replayed from the journal at the last start")
        self._trouble = counter("troubles", "Failures that were waited out", "error")

    def alive(self, model: str) -> None:
        """The trainer's loop goes round."""
        self._alive_at_s[model] = self._clock.monotonic_s()

    def owned(self, model: str, epoch: int, replayed: int) -> None:
        """The trainer owns the model and has recovered."""
        self._epoch.labels(model).set(epoch)
        self._replayed.labels(model).set(replayed)
        self._owned.add(model)

    def stepped(self, model: str, fold: Fold, effects: Effects, seconds: float) -> None:
        """A turn is done."""
        for kind in ("events", "labels", "examples", "learned"):
            self._records.labels(model, kind).inc(getattr(effects, kind))
        for _, error in effects.dead_letters:
            self._dead.labels(model, error.reason).inc()
        for outcome, count in fold.join.counts.items():
            before = self._outcomes.get((model, outcome), 0)
            self._outcomes[model, outcome] = count
            self._joined.labels(model, outcome).inc(max(count - before, 0))
        self._drifts.labels(model).inc(len(effects.drifts))
        self._retrainings.labels(model).set(fold.contest.retrainings)
        self._turn_seconds.labels(model).observe(seconds)
        self._waiting.labels(model, "event").set(fold.join.waiting())
        self._waiting.labels(model, "label").set(fold.join.early())
        self._trained_through.labels(model).set(fold.trained_through_ms / 1000)

    def published(self, model: str, published: Published) -> None:
        """A version is out."""
        self._snapshots.labels(model).inc()
        self._snapshot_bytes.labels(model).set(published.size_bytes)
        for name, value in published.metrics.items():
            if value is not None:
                self._quality.labels(model, name).set(value)

    def trouble(self, model: str, error: RiverrunError) -> None:
        """Something failed that may pass."""
        self._trouble.labels(model, type(error).__name__).inc()

    def health(self) -> tuple[bool, str]:
        """Whether every trainer's loop went round of late, and in words which did not."""
        now_s = self._clock.monotonic_s()
        stalled = [m for m, at_s in self._alive_at_s.items() if now_s - at_s > self._stalled_after_s]
        if stalled:
            return False, f"stalled: {', '.join(sorted(stalled))}"
        if not self._alive_at_s:
            return True, "starting"
        standing_by = sorted(set(self._alive_at_s) - self._owned)
        return True, f"standing by: {', '.join(standing_by)}" if standing_by else "training"


class MetricsServer:
    """`/metrics` and `/healthz` of a trainer, in a thread of its own."""

    def __init__(self, registry: CollectorRegistry, metrics: TrainerMetrics, host: str, port: int) -> None:
        exposition = make_wsgi_app(registry)

        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            path = environ.get("PATH_INFO", "")
            if path == "/metrics":
                return list(exposition(environ, start_response))
            if path != "/healthz":
                start_response("404 Not Found", [("content-type", "text/plain")])
                return [b"/metrics or /healthz\n"]
            well, text = metrics.health()
            status = "200 OK" if well else "503 Service Unavailable"
            start_response(status, [("content-type", "text/plain; charset=utf-8")])
            return [f"{text}\n".encode()]

        try:
            self._server = make_server(host, port, app, WSGIServer, _Quiet)
        except OSError as error:
            raise ConfigError(f"trainer: cannot listen on {host}:{port}: {error.strerror}") from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="riverrun-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port listened on."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(WSGIRequestHandler):
    timeout = 5  # a client that says nothing holds the one thread no longer than this

    def log_message(self, *_: object) -> None:
        """Scrapes are no news."""
