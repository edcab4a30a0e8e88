"""The flights that come with the program, and the model that learns them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from cli.file_events import FileEvents
from core.config import ModelConfig

NAME = "flights"
ROWS = 336_776
_FOLDER = Path(__file__).with_name("data")


def demo_file() -> Path:
    """The Parquet file (see README.md beside it)."""
    return _FOLDER / "flights.parquet"


def demo_config_text() -> str:
    """A riverrun.toml for them."""
    return (_FOLDER / "flights.toml").read_text("utf-8")


def demo_model() -> ModelConfig:
    """Its one model."""
    return ModelConfig.model_validate(tomllib.loads(demo_config_text())["models"][NAME])


def demo_rows(n: int = ROWS, model: ModelConfig | None = None) -> FileEvents:
    """The first n departures of 2013 with their labels, in the order in which they became known. There
    are ROWS of them; n above that gives all."""
    if n < 1:
        raise ValueError(f"at least one event, not {n}")
    return FileEvents(demo_file(), NAME, model or demo_model(), limit=n)
