"""A trainer's hold on its model."""

from __future__ import annotations

import logging
import threading

from core.clock import Clock
from core.errors import RiverrunError
from snapshots.store import Ownership
from stream.driver.patience import Patience, did
from stream.driver.watcher import Watcher

_log = logging.getLogger("riverrun.trainer")


class Lease:
    """Taken once nobody else has it, kept by asking again and again, given back at the end."""

    def __init__(
        self,
        ownership: Ownership,
        model: str,
        owner: str,
        lease_s: float,
        clock: Clock,
        watcher: Watcher,
        patience: Patience,
    ) -> None:
        self._ownership = ownership
        self._model = model
        self._owner = owner
        self._lease_s = lease_s
        self._clock = clock
        self._watcher = watcher
        self._patience = patience
        self._renewed_at_s = 0.0

    def acquire(self, stop: threading.Event) -> int | None:
        """The epoch, once nobody else owns the model; None where told to stop first."""
        said = False
        while not stop.is_set():
            self._watcher.alive(self._model)
            epoch = self._patience.until_done(
                lambda: self._ownership.acquire(self._model, self._owner, self._lease_s) or 0
            )
            if epoch:
                self._renewed_at_s = self._clock.monotonic_s()
                return epoch
            if not said and epoch == 0:
                _log.info("model %s: another trainer owns it; standing by", self._model)
                said = True
            stop.wait(min(0.5, self._lease_s / 4))
        return None

    def keep(self, epoch: int) -> None:
        """Extends it where a third of its time has passed. Raises StaleEpoch where it is lost."""
        self._watcher.alive(self._model)
        now_s = self._clock.monotonic_s()
        if now_s - self._renewed_at_s > self._lease_s / 3:
            renew = self._ownership.renew
            if self._patience.until_done(lambda: did(renew, self._model, self._owner, epoch, self._lease_s)):
                self._renewed_at_s = now_s

    def release(self, epoch: int) -> None:
        """Gives it back, if the store can be reached."""
        try:
            self._ownership.release(self._model, self._owner, epoch)
        except RiverrunError as error:
            self._patience.tell(error)
