"""What a table in a file is: rows of named columns, read in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cli.files.cells import Column
from core.plain import IntArray

BATCH_ROWS = 8_192


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows in order, as columns."""

    columns: dict[str, Column]
    count: int


class Table(Protocol):
    """A file of rows under named columns. Every method opens the file anew, and raises ConfigError where
    it cannot be read, naming the file and, for text, the line."""

    @property
    def columns(self) -> Sequence[str]:
        """Names in file order; for JSON Lines those of the first rows."""
        ...

    @property
    def rows(self) -> int | None:
        """How many rows there are, where the format tells without reading them all."""
        ...

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """All rows of these columns in file order, about `BATCH_ROWS` at a time, in bounded memory."""
        ...

    def gather(self, columns: Sequence[str], order: IntArray) -> Iterator[Rows]:
        """The rows `order[0], order[1], ...`; holds these columns of the whole file in memory (for JSON
        Lines the whole text)."""
        ...
