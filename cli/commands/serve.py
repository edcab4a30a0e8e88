"""`riverrun serve`."""

from __future__ import annotations

from pathlib import Path

import click

from cli.console import err
from cli.wiring import choose_models, config_option, log_to_stderr, open_services, read_config
from serving.main import run_server


@click.command(
    "serve", help="Answer predictions over HTTP with the newest models, until told to stop (SIGTERM)."
)
@config_option
@click.option("--model", "models", multiple=True, help="Only this model; may be given several times.")
@click.option("--host", help="Overrides serving.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Overrides serving.port; 0 takes a free one.")
def command(config_path: Path | None, models: tuple[str, ...], host: str | None, port: int | None) -> None:
    """Runs one predictor."""
    log_to_stderr()
    config = read_config(config_path)
    chosen = choose_models(config, models)
    log, store = open_services(config)

    def listening(at_host: str, at_port: int) -> None:
        err.print(f"riverrun serve: http://{at_host}:{at_port}")

    try:
        run_server(
            store.snapshots,
            list(chosen),
            log.append,
            host=host or config.serving.host,
            port=config.serving.port if port is None else port,
            max_body_bytes=config.serving.max_body_bytes,
            on_listening=listening,
        )
    finally:
        log.close()
        store.close()
