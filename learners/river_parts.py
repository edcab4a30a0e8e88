"""River transformers that the configuration's words build: selectors, and scalers that never change while
they transform (River's own keep an empty entry for each unseen feature that they are asked about)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from river import base, preprocessing

__all__ = ["SelectKind", "SelectNames", "StandardScaler"]

_KINDS: dict[str, tuple[type, ...]] = {"numeric": (int, float), "category": (str,)}


class SelectNames(base.Transformer):
    """Keeps the named features that are present, in the order of the names."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def transform_one(self, x: dict[Hashable, Any]) -> dict[Hashable, Any]:
        return {name: x[name] for name in self.names if name in x}


class SelectKind(base.Transformer):
    """Keeps the features whose value is a number ("numeric") or a string ("category")."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def transform_one(self, x: dict[Hashable, Any]) -> dict[Hashable, Any]:
        types = _KINDS[self.kind]
        return {name: value for name, value in x.items() if isinstance(value, types)}


class StandardScaler(preprocessing.StandardScaler):
    """River's scaler to the last bit, but asking about an unseen feature leaves no trace."""

    def transform_one(self, x: dict[Hashable, Any]) -> dict[Hashable, Any]:
        if self.window_size is not None:
            known = {name: value for name, value in x.items() if name in self.means}
            scaled: dict[Hashable, Any] = super().transform_one(known)  # type: ignore[no-untyped-call]
            return {name: scaled.get(name, 0.0 if self.with_std else x[name]) for name in x}
        mean = self.means.get
        if not self.with_std:
            return {name: value - mean(name, 0.0) for name, value in x.items()}
        variances = self.vars.get
        return {
            name: (value - mean(name, 0.0)) / v**0.5 if (v := variances(name, 0.0)) else 0.0
            for name, value in x.items()
        }
