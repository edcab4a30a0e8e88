"""What the predictor counts: plain numbers on the hot path, read by Prometheus through a collector."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# Upper bounds in seconds; an answer takes tens of microseconds, a bad day seconds.
BOUNDS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_LE = (*(str(bound) for bound in BOUNDS), "+Inf")


class Latency:
    """A histogram of seconds. One thread writes."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total_s += seconds


class ServingMetrics(Collector):
    """Counts of one predictor. Keys are tuples of label values from closed sets: configured models,
    roles, route templates, outcomes, reasons; never anything a client chose. Every counter has one
    writing thread (the event loop, the loader, or the mirror), so plain additions lose nothing."""

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, str], int] = defaultdict(int)  # route, status
        self.predictions: defaultdict[tuple[str, str, str], int] = defaultdict(int)  # model, role, outcome
        self.latency: defaultdict[tuple[str, str], Latency] = defaultdict(Latency)  # model, role
        self.refusals: defaultdict[tuple[str, str, str], int] = defaultdict(int)  # model, route, reason
        self.records: defaultdict[tuple[str, str], int] = defaultdict(int)  # model, events | labels
        self.shadow: defaultdict[tuple[str, str], int] = defaultdict(int)  # model, outcome
        self.dropped: defaultdict[str, int] = defaultdict(int)  # model; shadow rows that found no room
        self.loads: defaultdict[tuple[str, str], int] = defaultdict(int)  # model, outcome
        self.load_seconds: defaultdict[str, float] = defaultdict(float)  # model
        self.regressions: defaultdict[str, int] = defaultdict(int)  # model
        # Set once the models are known: rows of (model, role, version, revision, staleness in seconds).
        self.serving: Callable[[], Iterable[tuple[str, str, int, int, float]]] = tuple

    def register(self, registry: CollectorRegistry) -> None:
        """Makes these counts part of what the registry exports."""
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Nothing: so that registering reads nothing."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield _counter("riverrun_http_requests", "Answers sent.", ("route", "status"), self.requests)
        yield _counter(
            "riverrun_predictions",
            "Rows answered (ok), or that the role's model failed at (failed).",
            ("model", "role", "outcome"),
            self.predictions,
        )
        yield _counter(
            "riverrun_refused_requests",
            "Requests refused for what they held.",
            ("model", "route", "reason"),
            self.refusals,
        )
        yield _counter(
            "riverrun_accepted_records", "Records that the log has.", ("model", "topic"), self.records
        )
        shadow: dict[tuple[str, str], int] = dict(self.shadow)
        shadow.update({(model, "dropped"): n for model, n in list(self.dropped.items())})
        yield _counter(
            "riverrun_shadow_predictions",
            "Mirrored rows: agreed with or differed from the answer, answered (regression), failed, dropped.",
            ("model", "outcome"),
            shadow,
        )
        yield _counter(
            "riverrun_model_loads", "Lineages loaded in the background.", ("model", "outcome"), self.loads
        )
        yield _counter(
            "riverrun_model_load_seconds",
            "Time spent loading.",
            ("model",),
            {(model,): s for model, s in list(self.load_seconds.items())},
        )
        yield _counter(
            "riverrun_rollout_regressions",
            "Rollouts refused because a newer one had been seen: the store went back in time.",
            ("model",),
            {(model,): n for model, n in list(self.regressions.items())},
        )
        yield self._latency()
        version = GaugeMetricFamily(
            "riverrun_model_version", "Version that serves.", labels=("model", "role")
        )
        revision = GaugeMetricFamily(
            "riverrun_rollout_revision", "Revision of the rollout that serves.", labels=("model",)
        )
        stale = GaugeMetricFamily(
            "riverrun_staleness_seconds", "Age of the version that serves.", labels=("model", "role")
        )
        for model, role, number, rollout_revision, staleness_s in self.serving():
            version.add_metric((model, role), number)
            stale.add_metric((model, role), staleness_s)
            if role == "champion":
                revision.add_metric((model,), rollout_revision)
        yield from (version, revision, stale)

    def _latency(self) -> Metric:
        family = HistogramMetricFamily(
            "riverrun_predict_latency_seconds",
            "From a request that is read to an answer that is ready.",
            labels=("model", "role"),
        )
        for labels, latency in list(self.latency.items()):
            running, buckets = 0, []
            for bound, count in zip(_LE, list(latency.counts), strict=True):
                running += count
                buckets.append((bound, float(running)))
            family.add_metric(labels, buckets, latency.total_s)
        return family


def _counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in list(values.items()):
        family.add_metric(key, value)
    return family
