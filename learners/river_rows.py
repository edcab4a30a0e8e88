"""Columnar batches -> the dicts that River takes: one a row, present features only."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.batch import Batch
from core.schema import Schema


class Rows:
    """Makes dicts in schema order, column by column: float, int and bool features as such, categories
    as strings, `any` features as they came; missing ones are left out. An open map is copied."""

    def __init__(self, schema: Schema) -> None:
        self._open = schema.open
        self._kinds = [f.kind for f in schema.numeric]
        self._floats = all(f.kind == "float" for f in schema.features)
        self._names = [f.name for f in (*schema.numeric, *schema.categories, *schema.anys)]

    def __call__(self, batch: Batch) -> list[dict[str, Any]]:
        if self._open:
            return [dict(row) if row is not None else {} for row in batch.objects[:, 0]]
        names = self._names
        missing: list[bool] = np.any(np.isnan(batch.X), axis=0).tolist()
        if self._floats and not any(missing):
            return [dict(zip(names, values)) for values in batch.X.tolist()]  # noqa: B905  # see below
        columns: list[list[Any]] = []
        for j, kind in enumerate(self._kinds):
            column = batch.X[:, j].tolist()
            if missing[j]:
                convert: type = {"float": float, "int": int, "bool": bool}[kind]
                column = [convert(v) if v == v else None for v in column]  # noqa: PLR0124  # NaN: missing
            elif kind == "int":
                column = list(map(int, column))
            elif kind == "bool":
                column = list(map(bool, column))
            columns.append(column)
        holes = any(missing)
        for j in range(batch.objects.shape[1]):
            column = batch.objects[:, j].tolist()
            holes = holes or None in column
            columns.append(column)
        if not holes:
            # Without `strict`: a keyword costs as much as a third of the dict.
            return [dict(zip(names, values)) for values in zip(*columns, strict=True)]  # noqa: B905
        return [
            {name: value for name, value in zip(names, values) if value is not None}  # noqa: B905
            for values in zip(*columns, strict=True)
        ]
