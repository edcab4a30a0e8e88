"""Watching rollouts in Redis: pushes over a channel, with polling behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator

import redis

from core.errors import StoreError
from core.rollout import Rollout
from snapshots.redis_client import Keys, PubSub, RedisClient
from snapshots.store import Change

_SLICE_S = 0.1  # how long a wait for a push is not interrupted: closing takes as long at most


class RedisWatch:
    """One watcher. Lost pushes, lost connections and a store that is away cost time, never a change:
    what is yielded is always read from the rollout itself, and only where its revision is above the last
    one. A store that comes back empty or with an older rollout is waited out in silence."""

    def __init__(
        self,
        client: RedisClient,
        models: Collection[str],
        poll_s: float,
        rollout: Callable[[str], Rollout],
        closed: threading.Event,
    ) -> None:
        self._client = client
        self._models = {Keys(model).changes: model for model in models}
        self._poll_s = poll_s
        self._rollout = rollout
        self._closed = closed
        self._seen = dict.fromkeys(models, -1)

    def changes(self) -> Iterator[Change]:
        """The current rollouts, then newer ones, until closed."""
        clock = self._client.clock
        pushes: PubSub | None = None
        try:
            while not self._closed.is_set():
                if pushes is None:
                    pushes = self._subscribed()
                # After subscribing: what changes from here on is either read now or pushed.
                yield from self._newer(self._models.values())
                poll_at_s = clock.monotonic_s() + self._poll_s
                while not self._closed.is_set() and (left_s := poll_at_s - clock.monotonic_s()) > 0:
                    if pushes is None:
                        self._closed.wait(min(left_s, _SLICE_S))
                        continue
                    try:
                        message = pushes.get_message(timeout=min(left_s, _SLICE_S))
                    except (redis.RedisError, OSError):
                        self._ended(pushes)
                        pushes = None
                        continue
                    if message is not None and message["type"] == "message":
                        yield from self._newer([self._models[message["channel"].decode()]])
        finally:
            self._ended(pushes)

    def _subscribed(self) -> PubSub | None:
        """None where the store is away, or its account may not subscribe: polling goes on."""
        pushes = self._client.redis.pubsub(ignore_subscribe_messages=True)
        try:
            pushes.subscribe(*self._models)
            # The answers tell whether the channels are allowed.
            for _ in self._models:
                pushes.get_message(timeout=self._poll_s)
        except (redis.RedisError, OSError):
            self._ended(pushes)
            return None
        return pushes

    def _newer(self, models: Collection[str]) -> Iterator[Change]:
        for model in models:
            try:
                rollout = self._rollout(model)
            except StoreError:
                continue  # away or unreadable for now; the next poll tries again
            if rollout.revision > self._seen[model]:
                self._seen[model] = rollout.revision
                yield Change(model, rollout)

    @staticmethod
    def _ended(pushes: PubSub | None) -> None:
        if pushes is not None:
            try:
                pushes.close()
            except (redis.RedisError, OSError):
                return
