"""Operators' commands on their way to the trainer, in Redis."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from core.plain import Plain
from snapshots.codec import decode
from snapshots.redis_client import Keys, Pipe, RedisClient
from snapshots.sealed import require_command


class RedisCommands:
    """Commands in a Redis list. One pushed twice (its answer got lost, say) is pending once."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def push(self, model: str, command: Mapping[str, Plain]) -> None:
        with self._client.errors():
            self._client.redis.rpush(Keys(model).commands, require_command(command))

    def pending(self, model: str) -> Sequence[Mapping[str, Plain]]:
        pending: dict[str, Mapping[str, Plain]] = {}
        with self._client.errors():
            for data in self._client.redis.lrange(Keys(model).commands, 0, -1):
                command = decode(data)
                pending.setdefault(command["id"], command)
        return list(pending.values())

    def done(self, model: str, ids: Collection[str]) -> None:
        if not ids:
            return
        key = Keys(model).commands

        def write(pipe: Pipe) -> None:
            gone = [data for data in pipe.lrange(key, 0, -1) if decode(data)["id"] in ids]
            pipe.multi()
            for data in gone:
                pipe.lrem(key, 0, data)

        self._client.transact([key], write, model=model)
