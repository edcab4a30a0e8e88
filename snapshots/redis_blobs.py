"""Parts on their way into Redis.

A part is first staged under a key of the writer's epoch, and read back; publishing renames it to the blob
of its digest, in the transaction that publishes the version. So a blob is there only once a version names
it, and what a failed or replaced writer leaves can be deleted by anybody of its epoch or a later one,
without a transaction. That matters on a server that is full: it refuses every transaction, those that would
free memory too.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import StoreUnavailable
from snapshots.redis_client import MODELS, Keys, Pipe, RedisClient, number


class RedisBlobs:
    """The parts of one model, for a writer at an epoch."""

    def __init__(self, client: RedisClient, model: str, epoch: int) -> None:
        self._client = client
        self._model = model
        self._epoch = epoch
        self._keys = Keys(model)

    def stage(self, blobs: Mapping[str, bytes]) -> list[str]:
        """Writes the blobs (by digest) that are missing, or damaged so that their size is another, and
        reads them back. Returns the digests of these. Raises StaleEpoch, StoreUnavailable."""
        client, keys = self._client, self._keys
        with client.errors():
            with client.redis.pipeline(transaction=False) as pipe:
                pipe.get(keys.epoch)
                pipe.sadd(MODELS, self._model)
                pipe.smembers(keys.staged)
                for sha256 in blobs:
                    pipe.strlen(keys.blob(sha256))
                stored, _, left, *sizes = pipe.execute()
            client.require_epoch(self._model, self._epoch, stored)
            self._delete(left)
            staged: list[str] = []
            for (sha256, data), size in zip(blobs.items(), sizes, strict=True):
                if size == len(data) and data:  # an empty one may be missing
                    continue
                key = keys.staged_blob(self._epoch, sha256)
                with client.redis.pipeline(transaction=False) as pipe:
                    pipe.sadd(keys.staged, f"{self._epoch}:{sha256}")  # first: what is left can be found
                    pipe.set(key, data)
                    pipe.get(key)
                    *_, written = pipe.execute()
                if written != data:
                    raise StoreUnavailable(
                        f"the store at {client.where} gives back other bytes than it got: {key}"
                    )
                staged.append(sha256)
            return staged

    def watched(self, blobs: Mapping[str, bytes]) -> list[str]:
        """The keys to watch while publishing."""
        return [k for s in blobs for k in (self._keys.blob(s), self._keys.staged_blob(self._epoch, s))]

    def there(self, pipe: Pipe, blobs: Mapping[str, bytes], staged: list[str]) -> bool:
        """Whether all are still there, inside the publishing transaction."""
        for sha256, data in blobs.items():
            key = self._keys.staged_blob(self._epoch, sha256) if sha256 in staged else self._keys.blob(sha256)
            if pipe.strlen(key) != len(data) or not pipe.exists(key):
                return False
        return True

    def publish(self, pipe: Pipe, staged: list[str]) -> None:
        """Queues the renaming of what is staged."""
        for sha256 in staged:
            pipe.rename(self._keys.staged_blob(self._epoch, sha256), self._keys.blob(sha256))
            pipe.sadd(self._keys.blobs, sha256)
            pipe.srem(self._keys.staged, f"{self._epoch}:{sha256}")

    def clear(self) -> None:
        """Deletes what this epoch and earlier ones have staged and not published. Raises StoreUnavailable."""
        with self._client.errors():
            self._delete(self._client.redis.smembers(self._keys.staged))

    def _delete(self, staged: set[bytes]) -> None:
        names = sorted(name for name in staged if number(name.partition(b":")[0]) <= self._epoch)
        if names:
            with self._client.redis.pipeline(transaction=False) as pipe:
                for name in names:
                    epoch, _, sha256 = name.decode().partition(":")
                    pipe.unlink(self._keys.staged_blob(int(epoch), sha256))
                pipe.srem(self._keys.staged, *names)
                pipe.execute()
