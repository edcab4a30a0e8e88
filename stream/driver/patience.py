"""Waiting out trouble that passes: a log or a store that is away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from core.errors import RiverrunError, StaleEpoch
from stream.driver.watcher import Watcher

T = TypeVar("T")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
_log = logging.getLogger("riverrun.trainer")


class Patience:
    """Tries again what may work later, until `stop` is set. Every failure is told."""

    def __init__(self, model: str, watcher: Watcher, stop: threading.Event) -> None:
        self._model = model
        self._watcher = watcher
        self._stop = stop

    def until_done(self, do: Callable[[], T], tries: int = 0, tries_after_stop: int = 0) -> T | None:
        """Does it, again and again while it fails in a way that passes; None where told to stop meanwhile
        (or after so many tries). Raises StaleEpoch, and whatever does not pass by itself."""
        pause_s, tried = FIRST_PAUSE_S, 0
        while True:
            try:
                return do()
            except RiverrunError as error:
                tried += 1
                if isinstance(error, StaleEpoch) or not error.retriable:
                    raise
                if self._stop.is_set() and tried > tries_after_stop:
                    return None
                self.pause(error, pause_s)
                if tried == tries:
                    return None
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def pause(self, error: RiverrunError, seconds: float = FIRST_PAUSE_S) -> None:
        """Tells of the error and waits, but not past a stop."""
        self.tell(error)
        self._watcher.alive(self._model)
        self._stop.wait(seconds)

    def tell(self, error: RiverrunError) -> None:
        """Something failed that is tried again."""
        _log.warning("model %s: %s; trying again", self._model, error)
        self._watcher.trouble(self._model, error)


def did(do: Callable[..., None], *arguments: object) -> bool:
    """Does it; True tells it from what was given up."""
    do(*arguments)
    return True
