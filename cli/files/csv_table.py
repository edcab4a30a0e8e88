"""CSV files as tables of texts: what a text means is decided by the schema, never by the first block."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from cli.files.arrow_table import as_rows, gather, split
from cli.files.rows import Rows
from cli.files.text_input import open_bytes
from core.errors import ConfigError
from core.plain import IntArray

_BLOCK_BYTES = 1 << 21
_LONGEST_HEADER = 1 << 20
_LONGEST_CELL = 1 << 26
_DELIMITERS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')


class CsvTable:
    """A CSV file in UTF-8 with a header line. Cells may be quoted and hold line breaks; blank lines are
    passed over. The delimiter is the one of `, ; tab |` that the header has most of."""

    rows: int | None = None

    def __init__(self, path: Path, delimiter: str | None = None) -> None:
        self._path = path
        with open_bytes(path) as stream:
            header = stream.readline(_LONGEST_HEADER)
            while header in (b"\n", b"\r\n"):
                header = stream.readline(_LONGEST_HEADER)
        try:
            line = header.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: line 1 is not UTF-8 text") from None
        if not line:
            raise ConfigError(f"{path}: the file is empty")
        self._delimiter = delimiter or max(_DELIMITERS, key=_QUOTED.sub("", line).count)
        self.columns: Sequence[str] = next(csv.reader([line], delimiter=self._delimiter))
        self._check_header()

    def _check_header(self) -> None:
        seen: set[str] = set()
        twice = {n for n in self.columns if n in seen or seen.add(n)}  # type: ignore[func-returns-value]
        if twice:
            names = ", ".join(f'"{n}"' for n in sorted(twice)[:5])
            raise ConfigError(
                f"{self._path}: columns of one name in the header: {names}; "
                "is the first line data? It must name the columns"
            )

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        for batch in self._record_batches(columns):
            yield as_rows(batch, columns)

    def gather(self, columns: Sequence[str], order: IntArray) -> Iterator[Rows]:
        yield from gather(list(self._record_batches(columns)), columns, order)

    def _record_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # A column is always read: a file's rows are counted and checked even where no column is wanted.
        wanted = list(columns) or list(self.columns[:1])
        convert = pacsv.ConvertOptions(
            column_types={name: pa.string() for name in wanted},
            include_columns=wanted,
            strings_can_be_null=False,
        )
        parse = pacsv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)
        read = pacsv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False)
        with (
            open_bytes(self._path) as stream,
            self._explained(),
            pacsv.open_csv(stream, read, parse, convert) as reader,
        ):
            for batch in reader:
                yield from split(batch)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Arrow does not say which line it stumbled over: look for it."""
        try:
            yield
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            with (
                open_bytes(self._path) as stream,
                # Broken bytes become lone surrogates, which no valid text holds.
                io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="") as text,
            ):
                where = self._first_bad_line(text)
            raise ConfigError(f"{self._path}: {where or error}") from None

    def _first_bad_line(self, text: io.TextIOWrapper) -> str:
        limit = csv.field_size_limit(_LONGEST_CELL)
        reader = csv.reader(text, delimiter=self._delimiter)
        before = 0
        try:
            for cells in reader:
                if any("\udc80" <= c <= "\udcff" for value in cells for c in value):
                    return f"line {before + 1} is not UTF-8 text"
                if cells and len(cells) != len(self.columns):
                    return f"line {before + 1} has {len(cells)} cells, the header has {len(self.columns)}"
                before = reader.line_num
        except csv.Error as error:
            return f"line {before + 1}: {error}"
        finally:
            csv.field_size_limit(limit)
        return ""
