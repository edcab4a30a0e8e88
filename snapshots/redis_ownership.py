"""Who may write a model, in Redis."""

from __future__ import annotations

from core.errors import StaleEpoch
from snapshots.redis_client import MODELS, Keys, Pipe, RedisClient, number


class RedisOwnership:
    """An Ownership in Redis. The lease runs by the server's clock. Its expiry alone stops nobody: an owner
    goes on until somebody else acquires the model, and is then refused by epoch."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def acquire(self, model: str, owner: str, lease_s: float) -> int | None:
        keys = Keys(model)

        def write(pipe: Pipe) -> int | None:
            held = _parsed(pipe.get(keys.lease))
            if held is not None and held[0] != owner:
                return None
            stored = pipe.get(keys.epoch)
            # Where the store has lost its data, the time keeps the epoch above all that were given out.
            epoch = number(stored) + 1 if stored else max(1, self._client.clock.now_ms() // 1000)
            old, new = keys.journal(number(stored)), keys.journal(epoch)
            pipe.watch(old)
            has_journal = pipe.exists(old)
            pipe.multi()
            pipe.set(keys.epoch, epoch)
            pipe.set(keys.lease, f"{epoch} {owner}", px=_milliseconds(lease_s))
            if has_journal:
                pipe.rename(old, new)
            else:  # an empty stream
                pipe.xgroup_create(new, "none", id="$", mkstream=True)
                pipe.xgroup_destroy(new, "none")
            return epoch

        with self._client.errors():
            self._client.redis.sadd(MODELS, model)
        return self._client.transact([keys.lease], write, model=model)

    def renew(self, model: str, owner: str, epoch: int, lease_s: float) -> None:
        keys = Keys(model)

        def write(pipe: Pipe) -> None:
            held = _parsed(pipe.get(keys.lease))
            if held is not None and held != (owner, epoch):
                raise StaleEpoch(
                    f"{model}: owned by {held[0]!r} at epoch {held[1]}, not {owner!r} at {epoch}"
                )
            pipe.multi()
            pipe.set(keys.lease, f"{epoch} {owner}", px=_milliseconds(lease_s))

        self._client.transact([keys.lease], write, model=model, epoch=epoch)

    def release(self, model: str, owner: str, epoch: int) -> None:
        keys = Keys(model)

        def write(pipe: Pipe) -> None:
            if _parsed(pipe.get(keys.lease)) == (owner, epoch):
                pipe.multi()
                pipe.delete(keys.lease)

        self._client.transact([keys.lease], write, model=model)

    def owner(self, model: str) -> tuple[str, int] | None:
        with self._client.errors():
            return _parsed(self._client.redis.get(Keys(model).lease))


def _parsed(lease: bytes | None) -> tuple[str, int] | None:
    if lease is None:
        return None
    epoch, _, owner = lease.partition(b" ")
    return owner.decode(), number(epoch)


def _milliseconds(lease_s: float) -> int:
    return max(1, round(lease_s * 1000))
