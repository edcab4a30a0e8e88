"""What the tests of the Redis store share: one model, small versions of it, and a look at all kept."""

from __future__ import annotations

from snapshots.open_store import Store
from snapshots.redis_client import Keys
from snapshots.store import Snapshot

M = "flights"
KEYS = Keys(M)


def owned(store: Store, owner: str = "me") -> int:
    epoch = store.ownership.acquire(M, owner, 60)
    assert epoch is not None
    return epoch


def snapshot(text: str) -> Snapshot:
    return Snapshot(M, 0, {"note": text}, {"fold": text.encode() * 50, "same": b"same" * 10})


def check_versions(store: Store, texts: list[str]) -> None:
    """All versions kept are complete, and are these."""
    versions = store.snapshots.versions(M)
    assert [store.snapshots.load(M, v).manifest["note"] for v in versions] == texts
    for version, text in zip(versions, texts, strict=True):
        assert store.snapshots.load(M, version).parts == snapshot(text).parts
