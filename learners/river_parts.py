"""Parts that stand in River models for River's own: selectors behind the configuration's words, and versions
of three River classes that give the same results but depend on nothing outside the model (the order of a
set of strings differs from process to process) and leave no trace of being asked."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from river import base, preprocessing
from river.tree.nodes import efdtc_nodes, htc_nodes
from river.tree.splitter.nominal_splitter_classif import NominalSplitterClassif

__all__ = ["NominalSplitter", "Ordered", "Select", "SelectKind", "SelectNames", "StandardScaler"]

_KINDS: dict[str, tuple[type, ...]] = {"numeric": (int, float), "category": (str,)}


class SelectNames(base.Transformer):
    """Keeps the named features that are present, in the order of the names."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def transform_one(self, x: dict[Hashable, Any]) -> dict[Hashable, Any]:
        return {name: x[name] for name in self.names if name in x}


class Select(SelectNames):
    """River's `compose.Select`, but in the order given, and rows may lack a feature."""

    def __init__(self, *keys: str) -> None:
        super().__init__(list(keys))
        self.keys = keys


class SelectKind(base.Transformer):
    """Keeps the features whose value is a number ("numeric") or a string ("category")."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def transform_one(self, x: dict[Hashable, Any]) -> dict[Hashable, Any]:
        types = _KINDS[self.kind]
        return {name: value for name, value in x.items() if isinstance(value, types)}


class StandardScaler(preprocessing.StandardScaler):
    """River's scaler to the last bit, but asking about an unseen feature leaves no trace, and a number is
    looked up once where River does it three times."""

    def transform_one(self, x: dict[Hashable, Any]) -> dict[Hashable, Any]:
        if self.window_size is not None:
            return self._transform_windowed(x)
        means = self.means
        if not self.with_std:
            return {name: value - means.get(name, 0.0) for name, value in x.items()}
        variance_of = self.vars.get
        scaled: dict[Hashable, Any] = {}
        for name, value in x.items():
            variance = variance_of(name)
            scaled[name] = (value - means[name]) / variance**0.5 if variance else 0.0
        return scaled

    def learn_one(self, x: dict[Hashable, Any]) -> None:
        if self.window_size is not None or not self.with_std:
            super().learn_one(x)  # type: ignore[no-untyped-call]
            return
        counts, means, variances = self.counts, self.means, self.vars
        for name, value in x.items():
            counts[name] = count = counts[name] + 1
            old = means[name]
            means[name] = mean = old + (value - old) / count
            variance = variances[name]
            variances[name] = variance + ((value - old) * (value - mean) - variance) / count

    def _transform_windowed(self, x: dict[Hashable, Any]) -> dict[Hashable, Any]:
        asked = self.vars if self.with_std else self.means
        known = len(asked)
        try:
            scaled: dict[Hashable, Any] = super().transform_one(x)  # type: ignore[no-untyped-call]
        finally:
            if len(asked) != known:
                for name in x:
                    if name not in self.counts:
                        self.means.pop(name, None)
                        self.vars.pop(name, None)
        return scaled


class Ordered(dict[Any, None]):
    """A set that keeps the order in which its members came, as far as a splitter uses one."""

    def add(self, member: Any) -> None:
        self[member] = None


class NominalSplitter(NominalSplitterClassif):
    """River's splitter for categories. Of equally good splits it takes the value that came first, where
    River takes whichever its set yields first; and asking for a class that it has not met adds nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._att_values: Any = Ordered()

    def cond_proba(self, att_val: Any, target_val: Any) -> float:
        """The share of a value among a class's values."""
        if target_val not in self._att_dist_per_class:
            return 0.0
        share: float = super().cond_proba(att_val, target_val)  # type: ignore[no-untyped-call]
        return share


# River's leaves make their splitters by these two names: the only way in, short of a copy of every leaf.
for _nodes in (htc_nodes, efdtc_nodes):
    _nodes.NominalSplitterClassif = NominalSplitter  # type: ignore[attr-defined]
