"""`riverrun demo`."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from cli.commands.backtest import quality
from cli.commands.models import headline
from cli.console import counted, note, out, print_json, progress
from cli.demo.run import Demo, Outcome, Progress
from cli.demo_data import NAME, ROWS, demo_model
from cli.embedded_redis import EmbeddedRedis
from cli.env_overlay import PREFIX, overlay
from cli.wiring import json_option, services
from core.config import Config, LogConfig, StoreConfig
from core.errors import ConfigError

_CHANGES_TOLD = 12
_OF_THE_LOG = f"{PREFIX}LOG__"


@click.command("demo", help="The whole loop on bundled real data: flights that leave New York, learned live.")
@click.option(
    "--events", type=click.IntRange(1_000, ROWS), default=ROWS, show_default=True, help="How many flights."
)
@click.option("--kafka", is_flag=True, help="Over the broker at RIVERRUN__LOG__URL; embedded otherwise.")
@json_option
def command(events: int, kafka: bool, as_json: bool) -> None:
    """Ends with a report; everything in it was measured in this run."""
    note(f"Starting a log, a store, a trainer and a predictor; then {events:,} flights of 2013.")
    with _services(_broker() if kafka else None) as (folder, config), services(config) as (log, store):
        demo = Demo(folder, config, log, store, events, _environ(kafka))
        with progress("events") as bar:
            task = bar.add_task("learning", total=demo.rows, note="")

            def tell(now: Progress) -> None:
                accuracy = "" if now.accuracy is None else f"accuracy {now.accuracy:.3f}  "
                bar.update(
                    task, completed=min(now.trained, demo.rows), note=f"v{now.version}  {accuracy}{now.roles}"
                )

            outcome = demo.run(tell)
    report = describe(outcome)
    if as_json:
        print_json(report)
    else:
        show(outcome, report)


def _broker() -> LogConfig:
    """The [log] of the environment alone: the demo brings its own configuration."""
    data: dict[str, Any] = {"log": {"url": "kafka://localhost:9092"}}
    given = {name: value for name, value in os.environ.items() if name.upper().startswith(_OF_THE_LOG)}
    _, problems = overlay(data, given)
    if problems:
        raise ConfigError(problems)
    try:
        config = LogConfig.model_validate(data["log"])
    except ValidationError:
        raise ConfigError(f"{_OF_THE_LOG}...: not the settings of a log") from None
    if not config.url.startswith("kafka://"):
        raise ConfigError(f"{_OF_THE_LOG}URL: kafka://host:port for `--kafka`")
    return config


def _environ(kafka: bool) -> dict[str, str]:
    """What the demo's processes inherit: of the program's own settings, only how to reach the broker."""

    def fits(name: str) -> bool:
        return not name.startswith(PREFIX) or (kafka and name.startswith(f"{_OF_THE_LOG}OPTIONS__"))

    return {name: value for name, value in os.environ.items() if fits(name.upper())}


@contextmanager
def _services(kafka: LogConfig | None) -> Iterator[tuple[Path, Config]]:
    with tempfile.TemporaryDirectory(prefix="riverrun-demo-") as name, EmbeddedRedis() as server:
        model = demo_model()
        log = LogConfig(url=server.url)
        if kafka is not None:
            run = f"-{uuid.uuid4().hex[:8]}"  # on a shared broker each run has topics of its own
            log = kafka.model_copy(update={"prefix": f"{kafka.prefix}{run}"})
            topics = {"events": model.events + run, "labels": f"{model.labels}{run}"}
            model = model.model_copy(update=topics)
        yield Path(name), Config(log=log, store=StoreConfig(url=server.url), models={NAME: model})


def describe(outcome: Outcome) -> dict[str, Any]:
    """The report, as one object."""
    manifest, served = outcome.manifest, outcome.served
    counts = manifest["counts"]
    return {
        "events": counts["events"],
        "labels": counts["labels"],
        "examples": counts["examples"],
        "injected": outcome.injected,
        "dead_letters": manifest["dead_letters"],
        "dead_lettered": outcome.dead_lettered,
        "seconds": round(outcome.seconds, 2),
        "events_per_s": round(counts["events"] / outcome.seconds, 1),
        "metrics": manifest["metrics"],
        "baselines": manifest["baselines"],
        "drifts": manifest["drift"]["drifts"],
        "retrainings": manifest["drift"]["retrainings"],
        "versions": outcome.versions,
        "rollout": {
            "roles": [
                {"role": row["role"], "lineage": row["lineage"], "version": row["version"]}
                for row in outcome.roles
            ],
            "changes": outcome.changes,
        },
        "join": manifest["counters"],
        "served": {
            "requests": served.requests,
            "errors": served.errors,
            "p50_ms": served.percentile_ms(50),
            "p99_ms": served.percentile_ms(99),
            "versions_seen": len(served.versions),
            "roles": dict(served.roles),
            "complaints": served.complaints,
        },
    }


def show(outcome: Outcome, report: dict[str, Any]) -> None:
    """The report for people."""
    served = report["served"]
    dead = ", ".join(f"{reason} {count}" for reason, count in report["dead_letters"].items())
    out.print(
        f"Will a flight arrive more than 15 minutes late? {report['events']:,} departures and later "
        f"{report['labels']:,} labels made {report['examples']:,} examples in {report['seconds']:.0f} s."
    )
    out.print(quality(report["metrics"], report["baselines"]))
    out.print(f"Bad records: {report['injected']} sent, {report['dead_lettered']} dead-lettered ({dead}).")
    out.print(
        f"Drift: {counted(len(report['drifts']), 'alarm')}, "
        f"{counted(report['retrainings'], 'challenger')} born. "
        f"{report['versions']} versions published; now "
        + "; ".join(f"{r['role']} {r['lineage']} (v{r['version']})" for r in report["rollout"]["roles"])
        + "."
    )
    told = [c for c in report["rollout"]["changes"] if not c["reason"].startswith("shadow")]
    if len(told) > _CHANGES_TOLD:
        out.print(f"  ({len(told) - _CHANGES_TOLD} earlier changes of role; --json has all)")
    for change in told[-_CHANGES_TOLD:]:
        out.print(f"  {change['at'][11:19]} {change['reason']}")
    roles = ", ".join(f"{role} {count:,}" for role, count in served["roles"].items())
    out.print(
        f"Meanwhile a client asked {served['requests']:,} times over HTTP: {served['errors']} errors, "
        f"p50 {served['p50_ms']} ms, p99 {served['p99_ms']} ms, answers from "
        f"{served['versions_seen']} versions ({roles})."
    )
    for row in outcome.roles:
        out.print(f"  {row['role']}: {headline(row['metrics'])}")
