"""`riverrun produce`."""

from __future__ import annotations

from pathlib import Path

import click

from cli.console import out, print_json, progress
from cli.file_events import FileEvents
from cli.load_config import pick_model
from cli.produce import produce
from cli.wiring import config_option, json_option, open_services, read_config
from core.clock import SystemClock


@click.command("produce", help="Send a file as events and labels.")
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@click.option("--model", help="Which model of the configuration; may be left out where there is one.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Records a second; as fast as possible otherwise.",
)
@click.option("--speed", type=click.FloatRange(min=0, min_open=True), help="The file's own pace, times this.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many rows.")
@json_option
def command(
    file: Path,
    config_path: Path | None,
    model: str | None,
    rate: float | None,
    speed: float | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Sends every row as an event, and its label when it became known."""
    if rate is not None and speed is not None:
        raise click.UsageError("--rate or --speed, not both")
    config = read_config(config_path)
    name, chosen = pick_model(config, model)
    source = FileEvents(file, name, chosen, limit)
    log, store = open_services(config)
    try:
        for topic in filter(None, (chosen.events, chosen.labels)):
            log.create(topic)
        with progress("rows") as bar:
            task = bar.add_task(f"produce {name}", total=source.rows, note="")
            counts = produce(
                log,
                source.chunks(),
                rate,
                speed,
                lambda done: bar.update(task, completed=done.events, note=f"{done.labels:,} labels"),
                SystemClock(),
            )
    finally:
        log.close()
        store.close()
    if as_json:
        print_json({"model": name, "events": counts.events, "labels": counts.labels})
    else:
        out.print(f"{name}: {counts.events:,} events, {counts.labels:,} labels")
