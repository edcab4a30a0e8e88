"""JSON Lines files as tables: one object a line, nested values under dotted names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cli.files.rows import BATCH_ROWS, Rows
from cli.files.text_input import open_bytes
from core.errors import ConfigError
from core.plain import IntArray

_LOOK_AT = 10_000


class JsonLinesTable:
    """A JSON Lines file. Columns are the keys of the first ten thousand objects; a row without a key lacks
    that cell."""

    rows: int | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decode = msgspec.json.Decoder(dict[str, Any]).decode
        names: dict[str, None] = {}
        for batch in self._chunked(itertools.islice(self._lines(), _LOOK_AT)):
            for row in self._parsed(batch):
                _collect(row, "", names)
        if not names:
            raise ConfigError(f"{path}: no objects in the file")
        self.columns: Sequence[str] = list(names)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with open_bytes(self._path) as stream:
            for number, line in enumerate(stream, start=1):
                if not line.isspace():
                    yield number, line

    def _chunked(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
        while chunk := list(itertools.islice(lines, BATCH_ROWS)):
            yield chunk

    def _parsed(self, lines: Iterable[tuple[int, bytes]]) -> list[dict[str, Any]]:
        rows = []
        for number, line in lines:
            try:
                rows.append(self._decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ConfigError(f"{self._path}: line {number} is not a JSON object: {error}") from None
        return rows

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        for chunk in self._chunked(self._lines()):
            yield _as_rows(self._parsed(chunk), columns)

    def gather(self, columns: Sequence[str], order: IntArray) -> Iterator[Rows]:
        lines = list(self._lines())
        for start in range(0, len(order), BATCH_ROWS):
            chosen = [lines[i] for i in order[start : start + BATCH_ROWS].tolist()]
            yield _as_rows(self._parsed(chosen), columns)


def _collect(row: dict[str, Any], prefix: str, names: dict[str, None]) -> None:
    for key, value in row.items():
        if isinstance(value, dict) and value:
            _collect(value, f"{prefix}{key}.", names)
        else:
            names.setdefault(prefix + key)


def _as_rows(rows: list[dict[str, Any]], columns: Sequence[str]) -> Rows:
    return Rows({name: _column(rows, name) for name in columns}, len(rows))


def _column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    if "." not in name:
        return [row.get(name) for row in rows]
    return [row[name] if name in row else _walk(row, name.split(".")) for row in rows]


def _walk(row: Any, steps: list[str]) -> Any:
    for step in steps:
        if not isinstance(row, dict):
            return None
        row = row.get(step)
    return row
