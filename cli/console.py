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
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

_WIDE = 110  # columns of a terminal that has room for a bar
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


def counted(number: int, noun: str) -> str:
    """ "1 version", "2 versions"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def table(*columns: str) -> Table:
    """A table whose cells wrap where the terminal is narrow; nothing is cut off."""
    made = Table(*columns)
    for column in made.columns:
        column.overflow = "fold"
    return made


def progress(unit: str) -> Progress:
    """A bar on a terminal, without the bar where that is narrow; nothing where standard error is none."""
    note = TextColumn("{task.fields[note]}")
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        TextColumn(unit),
        note,
    ]
    if err.width >= _WIDE:
        columns[1:1] = [BarColumn(bar_width=24)]
        columns[-1:-1] = [TimeElapsedColumn(), TimeRemainingColumn()]
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
