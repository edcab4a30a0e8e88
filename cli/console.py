"""How commands talk: results on standard output, everything else on standard error."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

_PIPED_WIDTH = 200  # a file has no edge to wrap at; tables take what they need

# No markup: what is told may hold brackets of its own.
out = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
if not out.is_terminal and "COLUMNS" not in os.environ:
    out.width = _PIPED_WIDTH


def print_json(value: Any) -> None:
    """One JSON value on standard output, and nothing else."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """A word to whoever looks on: said on a terminal only."""
    if err.is_terminal:
        err.print(text)


def table(*columns: str) -> Table:
    """A table whose cells wrap where the terminal is narrow; nothing is cut off."""
    made = Table(*columns)
    for column in made.columns:
        column.overflow = "fold"
    return made


def progress(unit: str) -> Progress:
    """A bar on a terminal; nothing where standard error is none."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
