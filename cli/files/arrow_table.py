"""Parquet and Arrow (Feather) files as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cli.files.rows import BATCH_ROWS, Rows
from core.errors import ConfigError
from core.plain import IntArray


class ArrowTable:
    """A Parquet file, or an Arrow IPC file (Feather version 2)."""

    def __init__(self, path: Path, parquet: bool) -> None:
        self._path = path
        self._parquet = parquet
        with self._reading():
            if parquet:
                with pq.ParquetFile(path) as file:
                    self.columns: Sequence[str] = file.schema_arrow.names
                    self.rows: int | None = file.metadata.num_rows
            else:
                with pa.memory_map(str(path)) as source:
                    reader = pa.ipc.open_file(source)
                    self.columns = reader.schema.names
                    self.rows = None
        twice = {n for n in self.columns if list(self.columns).count(n) > 1}
        if twice:
            raise ConfigError(f"{path}: columns of one name: {', '.join(sorted(twice))}")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            kind = "Parquet" if self._parquet else "Arrow"
            raise ConfigError(f"{self._path}: not a readable {kind} file: {error}") from None

    def _record_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._reading():
            if self._parquet:
                with pq.ParquetFile(self._path) as file:
                    yield from file.iter_batches(BATCH_ROWS, columns=list(columns))
            else:
                with pa.memory_map(str(self._path)) as source:
                    reader = pa.ipc.open_file(source)
                    for i in range(reader.num_record_batches):
                        yield from split(reader.get_batch(i).select(list(columns)))

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        for batch in self._record_batches(columns):
            yield as_rows(batch, columns)

    def gather(self, columns: Sequence[str], order: IntArray) -> Iterator[Rows]:
        yield from gather(list(self._record_batches(columns)), columns, order)


def split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of at most `BATCH_ROWS` rows; no copies."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def as_rows(batch: pa.RecordBatch, columns: Sequence[str]) -> Rows:
    """A record batch as rows."""
    return Rows({name: batch.column(name) for name in columns}, batch.num_rows)


def gather(batches: list[pa.RecordBatch], columns: Sequence[str], order: IntArray) -> Iterator[Rows]:
    """The rows of all batches together, in another order."""
    if not batches:
        return
    table = pa.Table.from_batches(batches)
    wide = [
        pa.field(f.name, pa.large_string()) if pa.types.is_string(f.type) else f for f in table.schema
    ]  # 32-bit offsets would end at 2 GiB of text
    whole = table.cast(pa.schema(wide)).combine_chunks()
    arrays = {name: whole.column(name).chunk(0) if whole.num_rows else whole.column(name) for name in columns}
    for start in range(0, len(order), BATCH_ROWS):
        rows = pa.array(order[start : start + BATCH_ROWS])
        yield Rows({name: array.take(rows) for name, array in arrays.items()}, len(rows))
