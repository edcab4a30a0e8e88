"""`riverrun init`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli.console import note
from cli.init_file import guess_config
from core.errors import ConfigError


@click.command("init", help="Guess a riverrun.toml from a sample file (CSV, JSON Lines, Parquet, Arrow).")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", required=True, help="The model's name.")
@click.option("--label", required=True, help="The column to predict.")
@click.option("--ts", help="The column with the event's time.")
@click.option("--label-ts", help="The column with the time at which the label is known.")
@click.option("--id", "id_column", help="The column with the event's id.")
@click.option("--task", type=click.Choice(["binary", "multiclass", "regression"]), help="Guessed otherwise.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Written to standard output otherwise.",
)
@click.option("--force", is_flag=True, help="Overwrite the output file.")
def command(
    file: Path,
    model: str,
    label: str,
    ts: str | None,
    label_ts: str | None,
    id_column: str | None,
    task: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Writes a configuration that runs as it is."""
    if output is not None and output.exists() and not force:
        raise ConfigError(f"{output}: is there already; `--force` overwrites it")
    text = guess_config(file, model, label, ts, label_ts, id_column, task)
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}") from None
    note(f"wrote {output}; next: riverrun backtest {file} -c {output}")
