"""`riverrun backtest`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from cli.console import out, print_json, progress, table
from cli.file_events import FileEvents
from cli.load_config import pick_model
from cli.wiring import config_option, json_option, read_config
from core.clock import SystemClock
from core.config import ModelConfig
from core.errors import ConfigError
from stream.driver.backtest import Backtest, BacktestReport, Columns


@click.command("backtest", help="Report how a configuration would have done on a file, test-then-train.")
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@click.option("--model", help="Which model of the configuration; may be left out where there is one.")
@json_option
def command(file: Path, config_path: Path | None, model: str | None, as_json: bool) -> None:
    """Feeds the file's rows through the fold that `train` runs."""
    name, config = pick_model(read_config(config_path), model)
    source = FileEvents(file, name, config)
    report = run_backtest(source, config)
    if not report.rows:
        raise ConfigError(f"{file}: it has column names, and no rows")
    if as_json:
        print_json(asdict(report))
    else:
        show(name, report)


def run_backtest(source: FileEvents, config: ModelConfig) -> BacktestReport:
    """The report, with a bar on a terminal meanwhile."""
    with progress("rows") as bar:
        task = bar.add_task("backtest", total=source.rows, note="")

        def tell(rows: int, recent: float | None) -> None:
            note = "" if recent is None else f"of late {recent:.3f}"
            bar.update(task, completed=rows, note=note)

        return Backtest(config, SystemClock()).run(_columns(source), tell)


def _columns(source: FileEvents) -> Iterator[Mapping[str, Columns]]:
    for chunk in source.chunks():
        topics: dict[str, Columns] = {
            chunk.events_topic: (chunk.events.values, chunk.events.keys, chunk.events.timestamps_ms)
        }
        if chunk.labels_topic is not None:
            labels = chunk.labels
            topics[chunk.labels_topic] = (labels.values, labels.keys, labels.timestamps_ms)
        yield topics


def show(name: str, report: BacktestReport) -> None:
    """The report for people."""
    out.print(
        f"{name}: {report.rows:,} rows, {report.events:,} events, {report.labels:,} labels, "
        f"{report.examples:,} examples in {report.seconds:.1f} s ({report.events_per_s:,.0f} rows/s, "
        f"{report.peak_rss_mb:,.0f} MiB)"
    )
    out.print(quality(report.metrics, report.baselines))
    if report.dead_letters:
        told = ", ".join(f"{reason} {count:,}" for reason, count in report.dead_letters.items())
        out.print(f"dead letters: {told}")
    if report.drifts:
        told = ", ".join(f"{d['detector']} at {d['at']:,}" for d in report.drifts[:10])
        more = f" and {len(report.drifts) - 10} more" if len(report.drifts) > 10 else ""
        out.print(f"drifts: {told}{more}; retrainings: {report.retrainings}")


def quality(metrics: Mapping[str, float | None], baselines: Mapping[str, Any]) -> Table:
    """Metrics with the baselines behind them."""
    told = table("metric", "value", "no change", "majority or mean")
    against = "accuracy" if "majority" in baselines else "mae"
    usual = baselines.get("majority", baselines.get("mean"))
    for metric, value in metrics.items():
        row = (baselines.get("no_change"), usual) if metric == against else (None, None)
        told.add_row(metric, _number(value), *map(_number, row))
    return told


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
