"""Columnar mini-batches: what learners, detectors and buffers take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

import numpy as np

from core.plain import FloatArray, IntArray, ObjectArray

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def _value(cls: type[T]) -> type[T]:
    """A dataclass that is frozen to the type checker alone: one that refuses assignments by itself takes
    three times as long to make, which shows where a request is one row."""
    return dataclass(slots=True)(cls)


@_value
class Batch:
    """n rows in order. Columns follow the schema: `X` holds float, int and bool features as float64
    (NaN: missing), `objects` the category features as strings and then the `any` features as they came
    (None: missing). `y` is None for events; for examples it holds int64 class codes (see
    `n_classes`) or float64 targets. Arrays are never written to after a batch is made."""

    ids: ObjectArray  # [n] of str
    ts_ms: IntArray  # [n] event time, milliseconds since 1970 UTC
    X: FloatArray  # [n, numeric features]
    objects: ObjectArray  # [n, category features + any features]
    y: IntArray | FloatArray | None = None
    n_classes: int = 0  # classes known by the end of this batch; 0 in regression

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: IntArray) -> Batch:
        """The rows at these indices, copied."""
        return Batch(
            self.ids[rows],
            self.ts_ms[rows],
            self.X[rows],
            self.objects[rows],
            None if self.y is None else self.y[rows],
            self.n_classes,
        )

    def labelled(self, y: IntArray | FloatArray, n_classes: int) -> Batch:
        """The same rows with labels."""
        if len(y) != len(self.ids):
            raise ValueError(f"{len(y)} labels for {len(self.ids)} rows")
        return Batch(self.ids, self.ts_ms, self.X, self.objects, y, n_classes)


def concat(batches: Sequence[Batch]) -> Batch:
    """The rows of all batches, in order; all labelled or none. Needs at least one batch."""
    first = batches[0]
    if len(batches) == 1:
        return first
    y = None if first.y is None else np.concatenate([b.y for b in batches if b.y is not None])
    return Batch(
        np.concatenate([b.ids for b in batches]),
        np.concatenate([b.ts_ms for b in batches]),
        np.concatenate([b.X for b in batches]),
        np.concatenate([b.objects for b in batches]),
        y,
        max(b.n_classes for b in batches),
    )


@_value
class Predictions:
    """One row of scores an event: class probabilities [n, n_classes] (columns in class-code order,
    a row sums to 1), or the predicted value [n, 1] in regression."""

    scores: FloatArray

    def __len__(self) -> int:
        return len(self.scores)
