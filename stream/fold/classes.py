"""Labels as numbers: class codes in a fixed order, or targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.config import LabelValue, ModelConfig
from core.errors import BadRecord
from core.plain import FloatArray, IntArray


class Classes:
    """The classes of a model. Known beforehand (binary, or `classes` in the configuration), or growing in
    the order in which labels bring them, up to `max_classes` and all of the first one's type."""

    def __init__(self, config: ModelConfig, values: Sequence[LabelValue] | None = None) -> None:
        known = config.class_values()
        self._regression = config.task == "regression"
        self._growing = known is None and not self._regression
        self._limit = config.max_classes
        self.values: list[LabelValue] = list(values if values is not None else known or [])
        self._codes = {value: code for code, value in enumerate(self.values)}

    def __len__(self) -> int:
        return len(self.values)

    def code(self, labels: Sequence[Any]) -> tuple[IntArray | FloatArray, dict[int, BadRecord]]:
        """Codes (or targets) of decoded labels, and the rows whose label is none of the model's; those,
        and rows of None, get -1 (NaN in regression)."""
        if self._regression:
            return np.array(labels, dtype=np.float64), {}
        if self.values == [False, True] and set(map(type, labels)) <= {bool}:
            return np.array(labels, dtype=np.int64), {}
        codes = [self._codes.get(label, -1) for label in labels]
        bad: dict[int, BadRecord] = {}
        if -1 in codes:
            for i, label in enumerate(labels):
                if codes[i] >= 0 or label is None:
                    continue
                try:
                    codes[i] = self._new(label)
                except BadRecord as error:
                    bad[i] = error
        return np.array(codes, dtype=np.int64), bad

    def _new(self, label: LabelValue) -> int:
        found = self._codes.get(label)
        if found is not None:
            return found
        shown = f"{label!r:.60}"
        if not self._growing:
            known = ", ".join(f"{value!r:.30}" for value in self.values[:5])
            raise BadRecord("unknown_class", f"label: {shown} is none of {known}")
        if self.values and type(label) is not type(self.values[0]):
            raise BadRecord("wrong_type", f"label: {shown} beside {self.values[0]!r:.60}")
        if len(self.values) >= self._limit:
            raise BadRecord("class_limit", f"label: {shown} would be class {len(self.values) + 1}")
        self._codes[label] = len(self.values)
        self.values.append(label)
        return len(self.values) - 1
