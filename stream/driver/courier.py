"""Delivers a turn's effects while the next one is read."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.errors import RiverrunError
from stream.driver.delivery import Delivery
from stream.driver.patience import Patience, did
from stream.fold.effects import Effects
from stream.fold.inputs import TurnInput


@dataclass(frozen=True, slots=True)
class _Owed:
    """Effects on their way."""

    deliver: Callable[[], None]
    running: Future[None]


class Courier:
    """Has at most one turn's effects on the way."""

    def __init__(self, delivery: Delivery, patience: Patience) -> None:
        self._delivery = delivery
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="riverrun-deliver")
        self._owed: _Owed | None = None

    def owe(self, inputs: TurnInput, effects: Effects, classes: list[Any]) -> None:
        """Starts to deliver; call `settle` before the next turn."""
        if self._delivery.has_any(effects):
            deliver = partial(self._delivery.deliver, inputs, effects, classes)
            self._owed = _Owed(deliver, self._thread.submit(deliver))

    def settle(self) -> bool:
        """Waits until the effects of the turn before are in the log. No turn is journaled and no snapshot
        taken before: so what a crash may have left undelivered is what the last journaled turn brought
        about, and recovery delivers that again. A stop gives up after a few tries: False then."""
        owed = self._owed
        if owed is None:
            return True
        try:
            owed.running.result()
        except RiverrunError as error:
            if not error.retriable:
                raise
            self._patience.tell(error)
            if self._patience.until_done(lambda: did(owed.deliver), tries_after_stop=3) is None:
                return False
        self._owed = None
        return True

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown()
