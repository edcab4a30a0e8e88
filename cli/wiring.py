"""Where parts are put together: a configuration's log and store, and the checks of its models."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.load_config import Check, load_config
from core.config import Config, ModelConfig
from core.errors import ConfigError
from snapshots.open_store import Store, open_store
from stream.log.log import Log
from stream.log.open_log import open_log

EMBEDDED = "embedded://"
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


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")(
        command
    )


def read_config(path: Path | None) -> Config:
    """The configuration, its learners, detectors and buffers checked too. Raises ConfigError."""
    return load_config(path, os.environ, checks=model_checks())


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


def open_services(config: Config) -> tuple[Log, Store]:
    """The log and the store that the configuration names. Raises ConfigError."""
    problems = [
        f"{name}.url: none given; the embedded default lives only inside `riverrun up` and `riverrun demo`, "
        f"name a server such as {example}"
        for name, url, example in (
            ("log", config.log.url, "kafka://localhost:9092"),
            ("store", config.store.url, "redis://localhost:6379/0"),
        )
        if url == EMBEDDED
    ]
    if problems:
        raise ConfigError(problems)
    return open_log(config.log.url, config.log.options), open_store(config.store.url)


def choose_models(config: Config, names: Sequence[str]) -> dict[str, ModelConfig]:
    """The named models, or all. Raises UnknownModel."""
    from cli.load_config import pick_model

    return dict(pick_model(config, name) for name in names) if names else dict(config.models)


def log_to_stderr() -> None:
    """Messages of long-running roles: one line each, on standard error."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
