"""`riverrun produce`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from cli.console import err, out, print_json, progress
from cli.file_events import FileEvents
from cli.load_config import pick_model
from cli.produce import Sent, produce
from cli.running import with_running
from cli.wiring import config_option, create_topics, data_option, json_option, read_config
from core.clock import SystemClock
from stream.log.open_log import open_log


@click.command("produce", help="Send a file as events and labels.")
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@data_option
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
    data: Path | None,
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
    if chosen.file.id is None:
        err.print(
            "note: ids are row numbers, so another file's rows would count as duplicates; "
            f"models.{name}.file.id names a column of ids"
        )
    served = with_running(config, config_path, data, ("log",)).log
    with closing(open_log(served.url, served.options)) as log, progress("rows") as bar:
        task = bar.add_task(f"produce {name}", total=source.rows, note="")

        def tell(done: Sent) -> None:
            bar.update(task, completed=done.events, note=f"{done.labels:,} labels")

        create_topics(log, [chosen])
        sent = produce(log, source.chunks(), rate, speed, tell, SystemClock())
    if as_json:
        print_json({"model": name, "events": sent.events, "labels": sent.labels})
    else:
        pace = f" in {sent.seconds:.1f} s" if sent.seconds >= 1 else ""
        out.print(f"{name}: {sent.events:,} events, {sent.labels:,} labels{pace}")
    if sent.interrupted:
        raise KeyboardInterrupt
