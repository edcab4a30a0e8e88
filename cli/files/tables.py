"""Tables in files, read as a stream of batches of rows: CSV, JSON Lines, Parquet, Arrow."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from cli.files.arrow_table import ArrowTable
from cli.files.csv_table import CsvTable
from cli.files.jsonl_table import JsonLinesTable
from cli.files.rows import Table
from cli.files.text_input import member_name
from core.errors import ConfigError

SUFFIXES = ".csv, .tsv, .jsonl, .ndjson (each also as .gz or in a .zip), .parquet, .arrow, .feather"


def open_table(path: Path) -> Table:
    """The table in a file, by the file's extension. Raises ConfigError for a file that is missing, empty,
    of an unknown kind, or not readable as what it says it is."""
    if not path.exists():
        raise ConfigError(f"{path}: no such file{_nearby(path)}")
    if not path.is_file():
        raise ConfigError(f"{path}: not a file")
    if path.stat().st_size == 0:
        raise ConfigError(f"{path}: the file is empty")
    suffix = Path(member_name(path)).suffix.lower()
    if suffix in (".csv", ".tsv"):
        return CsvTable(path, "\t" if suffix == ".tsv" else None)
    if suffix in (".jsonl", ".ndjson"):
        return JsonLinesTable(path)
    if suffix in (".parquet", ".arrow", ".feather"):
        return ArrowTable(path, parquet=suffix == ".parquet")
    raise ConfigError(f"{path}: unknown kind of file {suffix!r}; known are {SUFFIXES}")


def check_columns(path: Path, table: Table, wanted: dict[str, str]) -> None:
    """Raises ConfigError naming every wanted column (name to who wants it) that the file lacks."""
    problems = []
    for name, asker in wanted.items():
        if name not in table.columns:
            close = difflib.get_close_matches(name, table.columns, n=1)
            mend = f'did you mean "{close[0]}"?' if close else f"it has {_listed(table.columns)}"
            problems.append(f'{path}: no column "{name}" ({asker}); {mend}')
    if problems:
        raise ConfigError(problems)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _nearby(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f": there is no folder {folder}"
    close = difflib.get_close_matches(path.name, [p.name for p in folder.iterdir()], n=1)
    return f'; did you mean "{folder / close[0]}"?' if close else ""
