"""One client to Redis for all four ports: keys, errors in words, and writes fenced by epoch.

Layout; all keys of a model share the hash tag {model}, so they lie in one cluster slot:

    riverrun:models                        set     names of models ever written (the only key of its own slot)
    riverrun:{model}:epoch                 text    the newest owner's epoch; only grows
    riverrun:{model}:lease                 text    "epoch owner", expires with the lease
    riverrun:{model}:current               text    the newest version
    riverrun:{model}:versions              zset    the versions kept
    riverrun:{model}:manifest:<version>    text    a sealed manifest (see sealed.py)
    riverrun:{model}:blobs                 set     digests of all blobs
    riverrun:{model}:blob:<sha256>         text    one part, immutable
    riverrun:{model}:staged                set     "<epoch>:<sha256>" of parts on their way
    riverrun:{model}:staged:<epoch>:<sha256> text  a part that no version names yet (see redis_blobs.py)
    riverrun:{model}:rollout               text    the encoded rollout
    riverrun:{model}:audit                 list    the newest changes of rollout
    riverrun:{model}:changes               channel a rollout's new revision is announced here
    riverrun:{model}:journal:<epoch>       stream  the turns (see redis_journal.py)
    riverrun:{model}:commands              list    operators' commands

No scripts and no dangerous commands are used: an account with `~riverrun:* resetchannels &riverrun:* +@all
-@scripting -@dangerous` suffices. Redis 6.2 or newer. Use maxmemory-policy noeviction: an evicting server
takes away parts of versions that are still served.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import WatchError
from redis.retry import Retry

from core.clock import Clock
from core.errors import Conflict, CorruptSnapshot, StaleEpoch, StoreError, StoreUnavailable

T = TypeVar("T")

# redis.client.Pipeline and PubSub: the library's types cannot tell the bytes we get from decoded text.
Pipe: TypeAlias = Any
PubSub: TypeAlias = Any

_ATTEMPTS = 50  # of a transaction that others keep disturbing

# What the server says when it takes no writes, or nothing at all, and what to do about it.
_MENDS = {
    "OOM": "Redis is out of memory: raise its maxmemory, or keep fewer versions (snapshot.keep)",
    "READONLY": "this Redis is a read-only replica: point store.url at the primary",
    "MISCONF": "Redis cannot save to disk and refuses writes: free disk space, check its log and directory",
    "NOREPLICAS": "Redis has fewer healthy replicas than min-replicas-to-write: bring them back",
    "MASTERDOWN": "this Redis replica has lost its primary: bring the primary back",
    "CLUSTERDOWN": "the Redis cluster is down: bring its missing slots back",
    "LOADING": "Redis is loading its data: wait until it is done",
}


class Keys:
    """The names of one model's keys."""

    def __init__(self, model: str) -> None:
        self._prefix = f"riverrun:{{{model}}}:"
        self.epoch = self._prefix + "epoch"
        self.lease = self._prefix + "lease"
        self.current = self._prefix + "current"
        self.versions = self._prefix + "versions"
        self.blobs = self._prefix + "blobs"
        self.staged = self._prefix + "staged"
        self.rollout = self._prefix + "rollout"
        self.audit = self._prefix + "audit"
        self.changes = self._prefix + "changes"
        self.commands = self._prefix + "commands"

    def manifest(self, version: int) -> str:
        return f"{self._prefix}manifest:{version}"

    def blob(self, sha256: str) -> str:
        return f"{self._prefix}blob:{sha256}"

    def staged_blob(self, epoch: int, sha256: str) -> str:
        return f"{self._prefix}staged:{epoch}:{sha256}"

    def journal(self, epoch: int) -> str:
        return f"{self._prefix}journal:{epoch}"


MODELS = "riverrun:models"


class RedisClient:
    """A pool of connections, safe to share between threads. Nothing is sent twice on its own: a write
    whose answer was lost raises StoreUnavailable, and the caller decides."""

    def __init__(self, client: redis.Redis, where: str, clock: Clock) -> None:
        self.redis: Any = client
        self.where = where
        self.clock = clock

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns the library's errors into the store's."""
        try:
            yield
        except redis.RedisError as error:
            raise self._translated(error) from error

    def transact(
        self,
        watched: list[str],
        change: Callable[[Pipe], T],
        *,
        model: str,
        epoch: int | None = None,
    ) -> T:
        """Runs `change`, all or nothing: with `watched` keys (and the epoch) watched, it reads through the
        pipeline, calls `multi()`, queues its writes, and its result is returned once they are done.
        Where a watched key changes in between, it runs again. Without `multi()` nothing is written.

        Raises StaleEpoch where `epoch` is not the model's, Conflict where others would not let it through,
        StoreUnavailable (it may or may not have been done where the connection broke in the end).
        """
        keys = Keys(model)
        for _ in range(_ATTEMPTS):
            with self.errors(), self.redis.pipeline() as pipe:
                try:
                    pipe.watch(keys.epoch, *watched)
                    if epoch is not None:
                        self.require_epoch(model, epoch, pipe.get(keys.epoch))
                    result = change(pipe)
                    if pipe.explicit_transaction:
                        pipe.execute()
                    return result
                except WatchError as error:
                    # The library says the same where the connection broke: then nobody knows the outcome.
                    if isinstance(error.__context__, (redis.ConnectionError, redis.TimeoutError, OSError)):
                        raise redis.ConnectionError(f"{error.__context__} (a write may be done)") from None
        raise Conflict(f"{model}: others changed the same keys {_ATTEMPTS} times in a row; try again")

    def require_epoch(self, model: str, epoch: int, stored: bytes | None) -> None:
        """Raises StaleEpoch unless `epoch` is the model's stored one. One above it is refused too: the
        store has lost what it knew, and the owner must acquire the model again."""
        newest = number(stored)
        if epoch != newest:
            why = (
                "somebody else owns it now"
                if epoch < newest
                else "the store has lost its data; acquire again"
            )
            raise StaleEpoch(f"{model}: a write at epoch {epoch}, but its epoch is {newest}: {why}")

    def close(self) -> None:
        """Closes the idle connections; one in use by another thread is closed when it is done."""
        self.redis.connection_pool.disconnect(inuse_connections=False)

    def _translated(self, error: redis.RedisError) -> StoreError:
        if isinstance(error, redis.AuthenticationError):
            return StoreError(f"the store at {self.where} refuses the user or password")
        if isinstance(error, redis.exceptions.NoPermissionError):
            return StoreError(f"the store at {self.where} forbids a command that riverrun needs: {error}")
        text = str(error)
        kinds = {
            redis.exceptions.OutOfMemoryError: "OOM",
            redis.ReadOnlyError: "READONLY",
            redis.BusyLoadingError: "LOADING",
            redis.exceptions.MasterDownError: "MASTERDOWN",
            redis.exceptions.ClusterDownError: "CLUSTERDOWN",
        }
        for kind, code in kinds.items():
            if isinstance(error, kind):
                return StoreUnavailable(f"the store at {self.where}: {_MENDS[code]}")
        for code, mend in _MENDS.items():
            if re.search(rf"\b{code}\b", text):
                return StoreUnavailable(f"the store at {self.where}: {mend}")
        if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
            return StoreUnavailable(f"the store at {self.where} cannot be reached: {text}")
        return StoreError(f"the store at {self.where}: {text}")


def connect(url: str, where: str, clock: Clock, timeout_s: float = 10.0) -> RedisClient:
    """A client that connects when first used. `where` is the address without secrets. Raises ValueError or
    TypeError for an address that the library cannot read (their words may hold parts of the password)."""
    options: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    client: redis.Redis = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
    client.connection_pool.make_connection()  # connects to nothing, but refuses options it does not know
    return RedisClient(client, where, clock)


def number(stored: bytes | None) -> int:
    """A stored counter; 0 where there is none. Raises CorruptSnapshot."""
    try:
        return int(stored) if stored is not None else 0
    except ValueError:
        raise CorruptSnapshot(f"a counter in the store holds {stored!r:.80}") from None
