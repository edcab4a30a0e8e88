"""Watching over a server that goes and comes back."""

from __future__ import annotations

import threading
import time
from typing import Any

import redis

from core.rollout import Rollout
from snapshots.codec import encode
from snapshots.open_store import Store, open_store
from snapshots.store import Change
from tests.snapshots.store_harness import KEYS, M, owned


class Watcher:
    """Watches in a thread, as a predictor does."""

    def __init__(self, store: Store, poll_s: float) -> None:
        self.changes: list[tuple[Change, float]] = []
        self._new = threading.Condition()
        self.thread = threading.Thread(target=self._run, args=(store, poll_s))
        self.thread.start()

    def _run(self, store: Store, poll_s: float) -> None:
        for change in store.snapshots.watch([M], poll_s):
            with self._new:
                self.changes.append((change, time.monotonic()))
                self._new.notify_all()

    def wait_for(self, revision: int) -> None:
        with self._new:
            assert self._new.wait_for(lambda: self.revisions()[-1:] == [revision], 15), self.changes

    def revisions(self) -> list[int]:
        return [change.rollout.revision for change, _ in self.changes]


def set_revision(store: Store, epoch: int, revision: int) -> None:
    store.snapshots.set_rollout(M, Rollout(revision), Rollout(revision - 1), epoch)


def test_watch_survives_restarts_and_never_goes_back(own_server: Any) -> None:
    own_server.start()
    store, writer = open_store(own_server.url), open_store(own_server.url)
    epoch = owned(writer)
    set_revision(writer, epoch, 1)
    with redis.Redis.from_url(own_server.url) as raw:
        raw.save()
    set_revision(writer, epoch, 2)
    watcher = Watcher(store, 0.1)
    try:
        watcher.wait_for(2)
        own_server.stop()
        time.sleep(0.3)
        own_server.start()  # with what it had saved: revision 1
        time.sleep(0.5)
        assert watcher.revisions() == [2]
        set_revision(writer, epoch, 2)
        time.sleep(0.3)
        assert watcher.revisions() == [2]
        set_revision(writer, epoch, 3)
        watcher.wait_for(3)
        with redis.Redis.from_url(own_server.url) as raw:
            raw.set(KEYS.rollout, b"nonsense")
            time.sleep(0.3)
            raw.flushall()
            raw.client_kill_filter(_type="pubsub")
        time.sleep(0.3)
        assert watcher.revisions() == [2, 3]
        assert watcher.thread.is_alive()
    finally:
        store.close()
        writer.close()
    watcher.thread.join(5)
    assert not watcher.thread.is_alive()


def test_watch_begins_before_the_server_does(own_server: Any) -> None:
    store = open_store(own_server.url)
    watcher = Watcher(store, 0.05)
    time.sleep(0.2)
    try:
        own_server.start()
        watcher.wait_for(0)
        set_revision(store, owned(store), 1)
        watcher.wait_for(1)
    finally:
        store.close()
    watcher.thread.join(5)
    assert not watcher.thread.is_alive()


def test_polling_finds_what_no_push_told(redis_url: str, raw: redis.Redis) -> None:
    store = open_store(redis_url)
    watcher = Watcher(store, 0.1)
    try:
        watcher.wait_for(0)
        raw.set(KEYS.rollout, encode(Rollout(5).state()))
        watcher.wait_for(5)
    finally:
        store.close()
    watcher.thread.join(5)
    assert not watcher.thread.is_alive()
