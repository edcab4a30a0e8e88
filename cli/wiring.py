"""Where parts are put together: a configuration's log and store, and the checks of its models."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.load_config import Check, load_config, pick_model
from cli.running import with_running
from core.config import Config, ModelConfig
from core.errors import ConfigError
from snapshots.open_store import Store, open_store
from stream.log.log import Log
from stream.log.open_log import open_log

F = TypeVar("F", bound=Callable[..., Any])


def config_option(command: F) -> F:
    """`-c FILE`."""
    option = click.option(
        "-c",
        "--config",
        "config_path",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The configuration; riverrun.toml in this folder otherwise.",
    )
    return option(command)


def data_option(command: F) -> F:
    """`--data DIR`."""
    option = click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="RIVERRUN_DATA",
        show_envvar=True,
        help="Where `riverrun up` keeps what is embedded; riverrun-data beside the configuration otherwise.",
    )
    return option(command)


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")(
        command
    )


def read_config(path: Path | None) -> Config:
    """The configuration, its learners, detectors and buffers checked too. Raises ConfigError."""
    return load_config(path, os.environ, checks=model_checks())


def read_running(path: Path | None, data: Path | None) -> Config:
    """The same, with what `riverrun up` runs in place of what is embedded. Raises NothingRuns too."""
    return with_running(read_config(path), path, data)


def model_checks() -> list[Check]:
    """What only the packages that use a setting can tell."""
    import drift.registry
    import learners.registry
    import replay.registry

    def learner(name: str, model: ModelConfig) -> list[str]:
        problems = learners.registry.check(model.learner, model.schema_(), model.task)
        return [f"models.{name}.{problem}" for problem in problems]

    def detectors(name: str, model: ModelConfig) -> list[str]:
        problems = [problem for spec in model.drift.detectors for problem in drift.registry.check(spec)]
        if model.drift.on_drift == "consolidate":
            problems.append(f'on_drift = "consolidate": learner "{model.learner.kind}" cannot consolidate')
        return [f"models.{name}.drift: {problem}" for problem in problems]

    def buffer(name: str, model: ModelConfig) -> list[str]:
        try:
            replay.registry.build(model.replay)
        except ConfigError as error:
            return [f"models.{name}.replay: {problem}" for problem in error.problems]
        return []

    return [learner, detectors, buffer]


@contextmanager
def services(config: Config) -> Iterator[tuple[Log, Store]]:
    """The log and the store that the configuration names, closed at the end. Raises ConfigError."""
    with ExitStack() as closing:
        log = open_log(config.log.url, config.log.options)
        closing.callback(log.close)
        store = open_store(config.store.url)
        closing.callback(store.close)
        yield log, store


def create_topics(log: Log, models: Iterable[ModelConfig]) -> None:
    """Makes the topics of these models where they are not there."""
    for model in models:
        for topic in filter(None, (model.events, model.labels)):
            log.create(topic)


def choose_models(config: Config, names: Sequence[str]) -> dict[str, ModelConfig]:
    """The named models, or all. Raises UnknownModel."""
    return dict(pick_model(config, name) for name in names) if names else dict(config.models)


def log_to_stderr() -> None:
    """Messages of long-running roles: one line each, on standard error."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
