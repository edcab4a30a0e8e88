"""`riverrun train`."""

from __future__ import annotations

import os
import signal
import socket
import threading
import uuid
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from cli.wiring import choose_models, config_option, data_option, log_to_stderr, read_running, services
from core.clock import SystemClock
from core.config import Config, ModelConfig
from core.errors import RiverrunError
from snapshots.open_store import Store
from stream.driver.metrics import MetricsServer, TrainerMetrics
from stream.driver.process import tune_process
from stream.driver.trainer import Trainer
from stream.driver.warming import warm_up
from stream.log.log import Log
from stream.log.open_log import open_log


@click.command("train", help="Learn from the log, model by model, until told to stop (SIGTERM).")
@config_option
@data_option
@click.option("--model", "models", multiple=True, help="Only this model; may be given several times.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Overrides trainer.metrics_port.")
def command(
    config_path: Path | None, data: Path | None, models: tuple[str, ...], metrics_port: int | None
) -> None:
    """Runs one trainer a model, each in a thread."""
    log_to_stderr()
    config = read_running(config_path, data)
    chosen = choose_models(config, models)
    port = config.trainer.metrics_port if metrics_port is None else metrics_port
    with services(config) as (log, store):
        ended_by = run_trainers(config, chosen, log, store, port)
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt


def run_trainers(
    config: Config, models: dict[str, ModelConfig], log: Log, store: Store, metrics_port: int
) -> int | None:
    """Trains until a signal (returned), or until one fails: then all stop, and its error is raised."""
    clock = SystemClock()
    registry = CollectorRegistry()
    metrics = TrainerMetrics(registry, clock)
    server = MetricsServer(registry, metrics, config.trainer.metrics_host, metrics_port)
    owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    for model in models.values():
        warm_up(model)
    # A log object has one reader: each model reads through its own.
    logs = [log, *(open_log(config.log.url, config.log.options) for _ in list(models)[1:])]
    trainers = [
        Trainer(name, model, config.trainer, own, store, clock, owner, config.log.prefix, metrics)
        for (name, model), own in zip(models.items(), logs, strict=True)
    ]
    failures: list[BaseException] = []

    signals: list[int] = []

    def stop_all() -> None:
        for trainer in trainers:
            trainer.stop()

    def on_signal(number: int, _: object) -> None:
        signals.append(number)
        stop_all()

    def run(trainer: Trainer) -> None:
        try:
            trainer.run()
        except BaseException as error:
            failures.append(error)
            stop_all()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    threads = [threading.Thread(target=run, args=(trainer,), name="riverrun-train") for trainer in trainers]
    tune_process()
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)  # in slices, so that signals are handled
    server.close()
    for extra in logs[1:]:
        extra.close()
    if failures:
        error = failures[0]
        raise error if isinstance(error, RiverrunError) else RuntimeError("a trainer failed") from error
    return signals[0] if signals else None
