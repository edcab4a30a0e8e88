"""Versions and roles in Redis. The layout of keys stands in `redis_client.py`.

Publishing goes: parts that are missing are staged and read back; then, in one transaction that watches the
epoch, the newest version and every part it names: blobs, manifest, list of versions, newest version. So
whatever breaks in between leaves the previous version newest, and at most staged parts, which the next
publish or prune takes away.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from core.errors import Conflict, CorruptSnapshot, StoreError, UnknownVersion
from core.plain import Plain
from core.rollout import Rollout
from snapshots.codec import decode, encode
from snapshots.redis_blobs import RedisBlobs
from snapshots.redis_client import MODELS, Keys, Pipe, RedisClient, number
from snapshots.redis_watch import RedisWatch
from snapshots.sealed import (
    decode_rollout,
    require_next,
    seal,
    unseal,
    verified_part,
    wanted_parts,
    with_parts,
)
from snapshots.store import Change, Snapshot

AUDIT_KEPT = 1_000
_STAGINGS = 3  # of the parts, where a prune takes them away in between


class RedisSnapshotStore:
    """A SnapshotStore in Redis."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._closed = threading.Event()
        self._publishing = threading.Lock()  # what is staged belongs to one publish at a time

    def publish(self, snapshot: Snapshot, epoch: int) -> int:
        keys = Keys(snapshot.model)
        snapshot = with_parts(snapshot)
        blobs: dict[str, bytes] = {
            snapshot.manifest["parts"][name]["sha256"]: data for name, data in snapshot.parts.items()
        }

        staging = RedisBlobs(self._client, snapshot.model, epoch)
        staged: list[str] = []

        def write(pipe: Pipe) -> int | None:
            version = number(pipe.get(keys.current)) + 1
            if not staging.there(pipe, blobs, staged):
                return None
            pipe.multi()
            staging.publish(pipe, staged)
            pipe.set(keys.manifest(version), seal(replace(snapshot, version=version)))
            pipe.zadd(keys.versions, {str(version): version})
            pipe.set(keys.current, version)
            return version

        watched = [keys.current, *staging.watched(blobs)]
        with self._publishing:
            try:
                for _ in range(_STAGINGS):
                    staged = staging.stage(blobs)
                    version = self._client.transact(watched, write, model=snapshot.model, epoch=epoch)
                    if version is not None:
                        return version
            except StoreError:
                with suppress(StoreError):
                    staging.clear()
                raise
        raise Conflict(f"{snapshot.model}: parts vanish while they are published; is there another writer?")

    def load(self, model: str, version: int, parts: Collection[str] | None = None) -> Snapshot:
        keys = Keys(model)
        with self._client.errors():
            sealed = self._client.redis.get(keys.manifest(version))
            if sealed is None:
                raise UnknownVersion(f"{model} has no version {version}; it has {self._kept(model)}")
            manifest = unseal(sealed, model, version)
            loaded: dict[str, bytes] = {}
            for name, part in wanted_parts(manifest, version, parts).items():
                data = self._client.redis.get(keys.blob(part["sha256"]))
                if data is None and not self._client.redis.exists(keys.manifest(version)):
                    raise UnknownVersion(f"{model} version {version} was pruned while it was read")
                loaded[name] = verified_part(data, name, part, model, version)
        return Snapshot(model, version, manifest, loaded)

    def _kept(self, model: str) -> str:
        versions = self.versions(model)
        return f"{versions[0]} to {versions[-1]}" if versions else "none"

    def versions(self, model: str) -> Sequence[int]:
        with self._client.errors():
            return [int(version) for version in self._client.redis.zrange(Keys(model).versions, 0, -1)]

    def prune(self, model: str, keep: int, epoch: int) -> int:
        keys = Keys(model)

        def write(pipe: Pipe) -> int:
            versions = [int(version) for version in pipe.zrange(keys.versions, 0, -1)]
            named = {a.version for _, a in decode_rollout(pipe.get(keys.rollout)).assigned()}
            newest = set(versions[-keep:]) if keep > 0 else set()
            kept = [version for version in versions if version in newest | named]
            gone = [version for version in versions if version not in newest | named]
            used: set[str] = set()
            sealed = pipe.mget(list(map(keys.manifest, kept))) if kept else []
            for version, data in zip(kept, sealed, strict=True):
                try:
                    manifest = unseal(data or b"", model, version)
                except CorruptSnapshot:
                    if version in named:
                        raise
                    gone.append(version)  # nobody can load it
                    continue
                used |= {part["sha256"] for part in manifest["parts"].values()}
            unused = sorted({blob.decode() for blob in pipe.smembers(keys.blobs)} - used)
            pipe.multi()
            if gone:
                pipe.zrem(keys.versions, *gone)
                pipe.unlink(*map(keys.manifest, gone))
            if unused:
                pipe.unlink(*map(keys.blob, unused))
                pipe.srem(keys.blobs, *unused)
            return len(gone)

        with self._client.errors():
            self._client.require_epoch(model, epoch, self._client.redis.get(keys.epoch))
        RedisBlobs(self._client, model, epoch).clear()
        watched = [keys.versions, keys.rollout, keys.blobs]
        return self._client.transact(watched, write, model=model, epoch=epoch)

    def models(self) -> Sequence[str]:
        with self._client.errors():
            names = sorted(name.decode() for name in self._client.redis.smembers(MODELS))
            with self._client.redis.pipeline(transaction=False) as pipe:
                for name in names:
                    pipe.exists(Keys(name).rollout, Keys(name).versions)
                found = pipe.execute()
        return [name for name, there in zip(names, found, strict=True) if there]

    def rollout(self, model: str) -> Rollout:
        with self._client.errors():
            return decode_rollout(self._client.redis.get(Keys(model).rollout))

    def set_rollout(self, model: str, new: Rollout, expected: Rollout, epoch: int) -> None:
        require_next(model, new, expected)
        keys = Keys(model)
        manifests = sorted({keys.manifest(a.version) for _, a in new.assigned()})
        entry = encode({**new.state(), "at_ms": self._client.clock.now_ms()})

        def write(pipe: Pipe) -> None:
            current = decode_rollout(pipe.get(keys.rollout))
            if current != expected:
                raise Conflict(
                    f"rollout of {model}: revision {expected.revision} was expected, "
                    f"{current.revision} is current"
                )
            for _, assignment in new.assigned():
                if not pipe.exists(keys.manifest(assignment.version)):
                    raise UnknownVersion(f"{model} has no version {assignment.version} to serve")
            pipe.multi()
            pipe.set(keys.rollout, encode(new.state()))
            pipe.rpush(keys.audit, entry)
            pipe.ltrim(keys.audit, -AUDIT_KEPT, -1)
            pipe.publish(keys.changes, new.revision)

        with self._client.errors():
            self._client.redis.sadd(MODELS, model)
        self._client.transact([keys.rollout, *manifests], write, model=model, epoch=epoch)

    def audit(self, model: str, limit: int = 100) -> Sequence[Mapping[str, Plain]]:
        if limit < 1:
            return []
        with self._client.errors():
            return [decode(entry) for entry in self._client.redis.lrange(Keys(model).audit, -limit, -1)]

    def watch(self, models: Collection[str], poll_s: float = 1.0) -> Iterator[Change]:
        return RedisWatch(self._client, models, poll_s, self.rollout, self._closed).changes()

    def close(self) -> None:
        """Ends every watch."""
        self._closed.set()
