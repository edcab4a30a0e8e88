"""The demo, over the embedded log and over a real Kafka broker: its report holds what happened."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

EVENTS = 20_000
Make = Callable[..., Any]


def examine(report: dict[str, Any]) -> None:
    """What every run of the demo must show."""
    assert {
        "events", "labels", "examples", "dead_letters", "events_per_s", "metrics", "baselines", "drifts",
        "retrainings", "versions", "rollout", "served",
    } <= set(report)  # fmt: skip
    assert {
        "accuracy", "balanced_accuracy", "kappa", "kappa_temporal", "log_loss", "roc_auc", "pr_auc", "f1",
    } <= set(report["metrics"])  # fmt: skip
    assert set(report["baselines"]) == {"no_change", "majority"}
    assert report["events"] == EVENTS
    assert 0.9 * EVENTS < report["examples"] <= report["labels"] <= EVENTS
    assert report["injected"] == EVENTS // 1_000
    assert report["dead_lettered"] == report["injected"] == sum(report["dead_letters"].values())
    served = report["served"]
    assert {"requests", "errors", "p50_ms", "p99_ms", "versions_seen"} <= set(served)
    assert served["errors"] == 0, served["complaints"]
    assert served["requests"] > 100
    assert served["versions_seen"] >= 2
    assert 0 < served["p50_ms"] <= served["p99_ms"]
    assert report["versions"] >= 2
    assert report["rollout"]["roles"][0]["role"] == "champion"
    assert set(report["rollout"]) == {"roles", "changes"}
    assert all(set(drift) == {"at", "detector"} for drift in report["drifts"])
    assert 0.5 < report["metrics"]["accuracy"] < 1
    assert report["metrics"]["roc_auc"] > 0.55


@pytest.mark.redis
def test_embedded(make_cli: Make) -> None:
    # What the user's shell holds for other models is none of the demo's business.
    cli = make_cli(RIVERRUN__LOG__PREFIX="mine", RIVERRUN__STORE__URL="redis://127.0.0.1:1/0")
    done = cli.run("demo", "--events", str(EVENTS), "--json", timeout_s=120)
    assert (done.returncode, done.stderr) == (0, "")
    examine(json.loads(done.stdout))


@pytest.mark.kafka
def test_over_kafka(make_cli: Make, kafka_url: str) -> None:
    cli = make_cli(RIVERRUN__LOG__URL=kafka_url)
    done = cli.run("demo", "--kafka", "--events", str(EVENTS), "--json", timeout_s=120)
    assert (done.returncode, done.stderr) == (0, "")
    examine(json.loads(done.stdout))
