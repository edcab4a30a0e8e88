"""`riverrun serve`."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from cli.console import err
from cli.wiring import choose_models, config_option, data_option, log_to_stderr, read_running, services
from core.contract import contract
from serving.main import run_server


@click.command(
    "serve", help="Answer predictions over HTTP with the newest models, until told to stop (SIGTERM)."
)
@config_option
@data_option
@click.option("--model", "models", multiple=True, help="Only this model; may be given several times.")
@click.option("--host", help="Overrides serving.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Overrides serving.port; 0 takes a free one.")
def command(
    config_path: Path | None, data: Path | None, models: tuple[str, ...], host: str | None, port: int | None
) -> None:
    """Runs one predictor."""
    log_to_stderr()
    config = read_running(config_path, data)
    chosen = choose_models(config, models)

    def listening(at_host: str, at_port: int) -> None:
        err.print(f"riverrun serve: http://{at_host}:{at_port}")

    with services(config) as (log, store):
        ended_by = run_server(
            store.snapshots,
            list(chosen),
            log.append,
            host=host or config.serving.host,
            port=config.serving.port if port is None else port,
            max_body_bytes=config.serving.max_body_bytes,
            factories=[m.learner.kind for m in chosen.values() if ":" in m.learner.kind],
            contracts={name: contract(model) for name, model in chosen.items()},
            on_listening=listening,
        )
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt
