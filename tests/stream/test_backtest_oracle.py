"""The backtest against River's own progressive validation: same model, same rows, same numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest
from river import compose, evaluate, linear_model, metrics, preprocessing

from cli.commands.backtest import run_backtest
from cli.demo_data import demo_file, demo_model
from cli.file_events import FileEvents
from core.config import ModelConfig

ROWS = 12_000
NUMBERS = ["month", "weekday", "hour", "minute", "arrival_hour", "distance", "origin_delay", "carrier_delay"]
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear"},
    "river": {
        "kind": "river",
        "steps": ["preprocessing.StandardScaler", "linear_model.LogisticRegression"],
    },
}


def flights(kind: str, **changes: Any) -> ModelConfig:
    base = demo_model().model_dump()
    return ModelConfig.model_validate(
        {
            **base,
            "features": dict.fromkeys(NUMBERS, "float"),
            "learner": KINDS[kind],
            "drift": {"detectors": ["adwin"], "on_drift": "alert"},
            **changes,
        }
    )


def river_model() -> Any:
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


@pytest.mark.parametrize("kind", KINDS)
def test_late_labels_equal_rivers_delayed_evaluation(kind: str) -> None:
    config = flights(kind)
    report = run_backtest(FileEvents(demo_file(), "flights", config, limit=ROWS), config)

    rows = (
        pq.read_table(demo_file(), columns=["scheduled", "known_at", "late", *NUMBERS])
        .slice(0, ROWS)
        .to_pylist()
    )
    labelled = [row for row in rows if row["late"] is not None]
    # River passes the row's features to `moment` and `delay`; the model must not see the times.
    times = {id(row): row for row in labelled}
    dataset = [({**{n: float(row[n]) for n in NUMBERS}, "_row": id(row)}, row["late"]) for row in labelled]
    log_loss = metrics.LogLoss()
    accuracy = metrics.Accuracy() + log_loss + metrics.F1() + metrics.BalancedAccuracy()
    evaluate.progressive_val_score(
        dataset,
        compose.Discard("_row") | river_model(),
        accuracy,
        moment=lambda x: times[x["_row"]]["scheduled"],
        delay=lambda x, _: max(times[x["_row"]]["known_at"] - times[x["_row"]]["scheduled"], timedelta(0)),
    )
    assert report.rows == ROWS
    assert report.examples == len(labelled)
    assert report.events == ROWS
    got = [report.metrics[name] for name in ("accuracy", "log_loss", "f1", "balanced_accuracy")]
    assert got == pytest.approx([metric.get() for metric in accuracy], abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_at_once_equal_rivers_progressive_validation(kind: str) -> None:
    config = flights(kind, labels=None, file={"id": "flight_id", "label": "late"})
    report = run_backtest(FileEvents(demo_file(), "flights", config, limit=ROWS), config)

    rows = pq.read_table(demo_file(), columns=["late", *NUMBERS]).slice(0, ROWS).to_pylist()
    dataset = [({n: float(row[n]) for n in NUMBERS}, row["late"]) for row in rows if row["late"] is not None]
    score = metrics.Accuracy() + metrics.LogLoss()
    evaluate.progressive_val_score(dataset, river_model(), score)
    assert report.examples == len(dataset)
    assert [report.metrics["accuracy"], report.metrics["log_loss"]] == pytest.approx(
        [metric.get() for metric in score], abs=1e-9
    )
