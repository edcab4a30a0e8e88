"""What the columns of a whole file hold, in one pass and bounded memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cli.files.cells import Column, cell, to_cells
from cli.files.rows import Table
from cli.files.times import parse_ms

# Above so many different values they are only counted, by hash; above so many hashes, no longer that.
FEW = 1_000
_MOST_HASHES = 2_000_000


@dataclass(slots=True)
class ColumnProfile:
    """What is known of one column. `values` (with how often each comes) is None once there are too many;
    `distinct` counts them all, up to a limit (`distinct_capped`)."""

    name: str
    rows: int = 0
    missing: int = 0
    kinds: set[str] = field(default_factory=set)  # of int, float, bool, text, nested
    values: dict[Any, int] | None = field(default_factory=dict)
    distinct: int = 0
    distinct_capped: bool = False
    texts: int = 0  # cells that are no numbers, truth values or nested
    chars: int = 0  # of the texts, together
    longest: int = 0
    spaces: int = 0  # texts of at least four words
    times: int = 0  # texts that are dates or times
    increasing: bool = True  # whole numbers only: each above the one before
    _hashes: set[int] = field(default_factory=set)
    _last: int | None = None

    @property
    def present(self) -> int:
        return self.rows - self.missing

    @property
    def numeric(self) -> bool:
        return bool(self.kinds) and self.kinds <= {"int", "float"}

    @property
    def whole(self) -> bool:
        return self.kinds == {"int"}

    @property
    def text(self) -> bool:
        return "text" in self.kinds and "nested" not in self.kinds

    @property
    def unique_share(self) -> float:
        """Different values a value; 1: no value comes twice."""
        return self.distinct / self.present if self.present else 0.0

    def add(self, column: Column) -> None:
        """The next cells of the column."""
        self.rows += len(column)
        if not isinstance(column, list) and pa.types.is_temporal(column.type):
            self._add_times(column)
            return
        if self.increasing:
            self._look_at_order(column)
        seen: dict[tuple[type, Any], int] = {}
        for raw, count in _counted(column):
            value = cell(raw, "any")
            if value is None:
                self.missing += count
            elif isinstance(value, (list, dict)):
                self.kinds.add("nested")
            else:
                key = (type(value), value)  # 1, 1.0 and True are one key otherwise
                seen[key] = seen.get(key, 0) + count
        for (type_, value), count in seen.items():
            self._look_at(type_, value, count)
        self._count(seen)

    def _add_times(self, column: pa.Array) -> None:
        """Times by their type need no looking at."""
        present = len(column) - column.null_count
        self.missing += column.null_count
        self.increasing = False
        self.kinds.add("text")
        self.texts += present
        self.times += present
        self._count({(int, t): 1 for t in pc.unique(column.drop_null().view(_bits(column))).to_pylist()})

    def _look_at_order(self, column: Column) -> None:
        numbers = to_cells(column, "int")
        if not numbers or any(type(n) is not int for n in numbers):
            self.increasing = False
            return
        last = [] if self._last is None else [self._last]
        steps = np.array([*last, *numbers], dtype=np.float64)
        self.increasing = bool((np.diff(steps) > 0).all())
        self._last = numbers[-1]

    def _look_at(self, type_: type, value: Any, count: int) -> None:
        if type_ is not str:
            self.kinds.add(type_.__name__)
            return
        number = cell(value, "float")
        if number is None:  # "NaN", "null": missing where numbers are
            self.missing += count
            return
        self.kinds.add("text")
        self.texts += count
        self.chars += len(value) * count
        self.longest = max(self.longest, len(value))
        self.spaces += count if value.count(" ") >= 3 else 0
        with contextlib.suppress(ValueError, OverflowError):
            self.times += count if parse_ms(value) is not None else 0

    def _count(self, seen: dict[Any, int]) -> None:
        if self.values is not None:
            for (_, value), count in seen.items():
                self.values[value] = self.values.get(value, 0) + count
            self.distinct = len(self.values)
            if len(self.values) > FEW:
                self._hashes = {hash(v) for v in self.values}
                self.values = None
            return
        if not self.distinct_capped:
            self._hashes.update(hash(value) for _, value in seen)
            self.distinct = len(self._hashes)
            self.distinct_capped = self.distinct > _MOST_HASHES
        if self.distinct_capped:
            self._hashes = set()


def _bits(column: pa.Array) -> pa.DataType:
    return pa.int64() if column.type.bit_width == 64 else pa.int32()


def _counted(column: Column) -> Iterable[tuple[Any, int]]:
    """Different values with how often each comes."""
    if isinstance(column, list):
        return [(value, 1) for value in column]
    try:
        counts = pc.value_counts(column)
    except pa.ArrowNotImplementedError:  # nested types
        return [(value, 1) for value in column.to_pylist()]
    values, numbers = counts.field("values"), counts.field("counts")
    return zip(values.to_pylist(), numbers.to_pylist(), strict=True)


def profile(table: Table, columns: Iterable[str] | None = None) -> dict[str, ColumnProfile]:
    """Every column's profile, in file order; reads the whole file."""
    names = list(table.columns if columns is None else columns)
    profiles = {name: ColumnProfile(name) for name in names}
    for rows in table.batches(names):
        for name in names:
            profiles[name].add(rows.columns[name])
    return profiles
