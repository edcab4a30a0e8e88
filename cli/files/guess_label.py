"""What a label column asks for: the task, and the classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.files.cells import to_cells
from cli.files.profile import ColumnProfile
from cli.files.rows import Table
from core.config import LabelValue
from core.errors import ConfigError
from core.schema import Task

MOST_CLASSES = 10_000  # ModelConfig.max_classes
_SURE_CLASSES = 20  # whole numbers: so many or fewer are classes,
_SURE_NUMBERS = 50  # more than so many are quantities, and between them nobody can tell
_MOST_TEXTS = 100
_ENOUGH_EACH = 5  # rows a class


@dataclass(frozen=True, slots=True)
class LabelGuess:
    """The task; the classes where they must be written down (the positive one of two last)."""

    task: Task
    classes: list[LabelValue] | None
    why: str


def guess_label(path: Path, table: Table, column: ColumnProfile, task: Task | None) -> LabelGuess:
    """The guess, or what the user said if it can be. Raises ConfigError where it cannot, or where the
    column leaves it open."""
    where = f'{path}: label "{column.name}"'
    if not column.present:
        raise ConfigError(f"{where}: every cell is empty")
    if column.distinct < 2 and task != "regression":
        raise ConfigError(f"{where}: holds one value only, nothing to learn")
    if "nested" in column.kinds:
        raise ConfigError(f"{where}: holds lists or objects, which are no labels")
    if column.text and column.times == column.present:
        raise ConfigError(f"{where}: holds times, which are no labels")
    # Texts are classes as they are written: "01" is not "1".
    texts = _values(table, column) if column.text else None
    n = column.distinct if texts is None else len(texts)
    chosen, why = (task, "as asked for") if task is not None else _task(where, column, n)
    if chosen == "regression":
        if not column.numeric:
            raise ConfigError(f"{where}: holds texts; regression needs numbers")
        return LabelGuess(chosen, None, why)
    if chosen == "binary" and n != 2:
        raise ConfigError(
            f"{where}: holds {n} different values; a binary task needs two, `--task multiclass` takes more"
        )
    if column.distinct > MOST_CLASSES:
        raise ConfigError(
            f"{where}: holds {column.distinct} different values; at most {MOST_CLASSES} classes"
        )
    return LabelGuess(chosen, _classes(where, table, column, chosen), why)


def _task(where: str, column: ColumnProfile, n: int) -> tuple[Task, str]:
    if n == 2:
        return "binary", "two values"
    if column.kinds == {"bool"}:
        return "binary", "true and false"
    if column.text:
        if n <= _MOST_TEXTS:
            return "multiclass", f"{n} texts"
        raise ConfigError(
            f"{where}: holds {n} different texts: are they classes? Then say `--task multiclass`; "
            "or name another column"
        )
    whole = column.whole or (column.values is not None and all(float(v).is_integer() for v in column.values))
    if not whole:
        return "regression", "numbers with fractions"
    if n <= _SURE_CLASSES and column.present >= n * _ENOUGH_EACH:
        return "multiclass", f"{n} whole numbers"
    if n > _SURE_NUMBERS:
        return "regression", f"{n} different numbers" if not column.distinct_capped else "many numbers"
    raise ConfigError(
        f"{where}: holds {n} different whole numbers: classes or quantities? "
        "Say `--task multiclass` or `--task regression`"
    )


def _values(table: Table, column: ColumnProfile) -> list[Any]:
    """The different labels as they will be sent; of far too many, some."""
    values: set[tuple[type, Any]] = set()
    for rows in table.batches([column.name]):
        values.update((type(v), v) for v in to_cells(rows.columns[column.name], "label") if v is not None)
        if len(values) > 2 * MOST_CLASSES:
            break
    return [value for _, value in values]


def _classes(where: str, table: Table, column: ColumnProfile, task: Task) -> list[LabelValue] | None:
    """Sorted; None for true and false, which need not be written down."""
    values = _values(table, column)
    if all(isinstance(v, str) for v in values):
        words = {v.strip().casefold() for v in values}
        if task == "binary" and words == {"true", "false"}:
            return None
        return _whole_numbers(where, column) if column.numeric else sorted(values)
    if all(isinstance(v, bool) for v in values):
        return None if task == "binary" else [False, True]
    return _whole_numbers(where, column)


def _whole_numbers(where: str, column: ColumnProfile) -> list[LabelValue]:
    if not column.numeric:
        raise ConfigError(f"{where}: holds values of several types, which make no classes")
    if column.values is None or not all(float(v).is_integer() for v in column.values):
        raise ConfigError(
            f"{where}: holds numbers with fractions, which are no classes; `--task regression`?"
        )
    return sorted(int(v) for v in column.values)
