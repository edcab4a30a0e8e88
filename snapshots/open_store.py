"""Opening a store by its address."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from core.clock import Clock, SystemClock
from core.errors import ConfigError
from snapshots.memory_store import (
    MemoryCommands,
    MemoryJournal,
    MemoryOwnership,
    MemorySnapshotStore,
    MemoryState,
)
from snapshots.redis_client import RedisClient, connect
from snapshots.redis_commands import RedisCommands
from snapshots.redis_journal import RedisJournal
from snapshots.redis_ownership import RedisOwnership
from snapshots.redis_store import RedisSnapshotStore
from snapshots.store import Commands, Journal, Ownership, SnapshotStore

_REDIS_SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class Store:
    """The four ports over one store. Safe to share between threads."""

    snapshots: SnapshotStore
    journal: Journal
    ownership: Ownership
    commands: Commands
    ping: Callable[[], None]  # raises StoreUnavailable where the store does not answer
    close: Callable[[], None]  # ends watches and connections; the store is not used after


def open_store(url: str, clock: Clock | None = None, timeout_s: float = 10.0) -> Store:
    """The store at redis://, rediss:// or unix:// (a path, `?db=1`), or a new one in memory (memory://).
    Connects when first used. Raises ConfigError for any other address."""
    clock = clock or SystemClock()
    scheme = url.partition(":")[0] if "://" in url else ""
    if scheme == "memory":
        return _in_memory(MemoryState(clock))
    if scheme not in _REDIS_SCHEMES:
        raise ConfigError(f"store.url: redis://, rediss://, unix:// or memory://, not {redacted(url)!r}")
    try:
        client = connect(url, redacted(url), clock, timeout_s)
    except (ValueError, TypeError):
        # The library's own words may quote a part of the password.
        raise ConfigError(f"store.url: not an address of Redis: {redacted(url)!r}") from None
    return _in_redis(client)


def _in_redis(client: RedisClient) -> Store:
    snapshots, journal = RedisSnapshotStore(client), RedisJournal(client)

    def ping() -> None:
        with client.errors():
            client.redis.ping()

    def close() -> None:
        snapshots.close()
        journal.close()
        client.close()

    return Store(snapshots, journal, RedisOwnership(client), RedisCommands(client), ping, close)


def _in_memory(state: MemoryState) -> Store:
    return Store(
        MemorySnapshotStore(state),
        MemoryJournal(state),
        MemoryOwnership(state),
        MemoryCommands(state),
        lambda: None,
        state.close,
    )


def redacted(url: str) -> str:
    """The address with passwords replaced by ***, for messages and logs."""
    url = re.sub(r"(password=)[^&]*", r"\1***", url)
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    login, at, host = rest.rpartition("@")  # the last @: an unescaped password may hold others
    if not at:
        return url
    user, colon, _ = login.partition(":")
    return f"{scheme}{separator}{user}{colon}{'***' if colon else ''}@{host}"
