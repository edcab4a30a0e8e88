"""Which column of a file is what to a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cli.files.cells import CellKind
from cli.files.rows import Table
from cli.files.tables import check_columns
from core.config import ModelConfig
from core.errors import ConfigError
from core.schema import Feature


@dataclass(frozen=True, slots=True)
class FeatureColumn:
    """A feature, the column that it is read from, and its steps inside the features object."""

    column: str
    kind: CellKind
    steps: tuple[str, ...]
    omit: bool = False  # an open map lacks what a row lacks


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The columns that one model needs of one file. None: as `FileConfig` says."""

    id: str | None
    ts: str | None
    label: str | None
    label_ts: str | None
    label_kind: CellKind
    features: tuple[FeatureColumn, ...]

    def needed(self) -> list[str]:
        """All of them, each once."""
        named = [self.id, self.ts, self.label, self.label_ts, *(f.column for f in self.features)]
        return list(dict.fromkeys(n for n in named if n is not None))


def plan_columns(path: Path, table: Table, name: str, model: ModelConfig) -> ColumnPlan:
    """The plan, or ConfigError naming every column that the file lacks and every contradiction."""
    where = f"models.{name}"
    file = model.file
    label = model.label if file.label is None else file.label
    wanted: dict[str, str] = {}
    for column, asker in (
        (file.id, "file.id"),
        (file.ts, "file.ts"),
        (label, "label" if file.label is None else "file.label"),
        (file.label_ts, "file.label_ts"),
    ):
        if column:
            wanted.setdefault(column, f"{where}.{asker}")
    special = set(wanted)
    schema = model.schema_()
    features: list[FeatureColumn] = []
    problems: list[str] = []
    for feature in () if schema.open else schema.features:
        column = _column_of(feature, table, model.fields.features)
        if column in (label, file.label_ts):
            problems.append(
                f'{where}.features.{feature.name}: "{column}" is the label or its time, no feature'
            )
        wanted.setdefault(column, f"{where}.features.{feature.name}")
        features.append(FeatureColumn(column, feature.kind, feature.steps))
    if schema.open:
        features = [FeatureColumn(c, "any", (c,), True) for c in table.columns if c not in special]
    if file.label_ts and not model.labels:
        problems.append(f"{where}.file.label_ts: labels that come later need a topic: set {where}.labels")
    try:
        check_columns(path, table, wanted)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return ColumnPlan(
        file.id or None,
        file.ts or None,
        label or None,
        file.label_ts or None,
        _label_kind(model),
        tuple(features),
    )


def _column_of(feature: Feature, table: Table, prefix: str) -> str:
    """A feature's column has its name; in files of whole records it has its path."""
    path = ".".join(feature.steps)
    for column in (feature.name, path, f"{prefix}.{path}"):
        if column in table.columns:
            return column
    return feature.name


def _label_kind(model: ModelConfig) -> CellKind:
    if model.task == "regression":
        return "float"
    classes = model.class_values()
    if classes is None:
        return "label"
    first = classes[0]
    return "bool" if isinstance(first, bool) else "int" if isinstance(first, int) else "category"
