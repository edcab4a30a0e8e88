"""Who looks on while a trainer works."""

from __future__ import annotations

from typing import Protocol

from core.errors import RiverrunError
from stream.driver.publishing import Published
from stream.fold.effects import Effects
from stream.fold.fold import Fold


class Watcher(Protocol):
    """Metrics, progress. Called in the training thread."""

    def owned(self, model: str, epoch: int, replayed: int) -> None: ...
    def stepped(self, model: str, fold: Fold, effects: Effects, seconds: float) -> None: ...
    def published(self, model: str, published: Published) -> None: ...
    def trouble(self, model: str, error: RiverrunError) -> None: ...
    def alive(self, model: str) -> None: ...
