"""What both stores write, byte by byte: sealed manifests and turns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.errors import CorruptSnapshot, StoreError
from core.plain import State
from core.records import Lane, Turn
from core.rollout import Rollout
from snapshots.codec import decode, encode
from snapshots.store import Snapshot

MANIFEST_FORMAT = 1
_DIGEST_BYTES = 32


def digest(part: bytes) -> str:
    """SHA-256 in hex: the name of a part's blob."""
    return hashlib.sha256(part).hexdigest()


def with_parts(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the digest and size of each part in its manifest."""
    parts = {name: {"sha256": digest(data), "size": len(data)} for name, data in snapshot.parts.items()}
    return replace(snapshot, manifest={**snapshot.manifest, "parts": parts})


def seal(snapshot: Snapshot) -> bytes:
    """A manifest as it is stored: the SHA-256 of what follows, then format, model, version, manifest."""
    body = encode(
        {
            "format": MANIFEST_FORMAT,
            "model": snapshot.model,
            "version": snapshot.version,
            "manifest": snapshot.manifest,
        }
    )
    return hashlib.sha256(body).digest() + body


def unseal(sealed: bytes, model: str, version: int) -> State:
    """The manifest. Raises CorruptSnapshot where a bit has changed, where it is another model's or
    version's, or where a newer riverrun wrote it."""
    which = f"manifest of {model} version {version}"
    body = sealed[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != sealed[:_DIGEST_BYTES]:
        raise CorruptSnapshot(f"{which}: its bytes do not match their digest")
    state = decode(body)
    if state.get("format") != MANIFEST_FORMAT:
        raise CorruptSnapshot(
            f"{which}: format {state.get('format')!r}; this riverrun reads {MANIFEST_FORMAT}"
        )
    if (state.get("model"), state.get("version")) != (model, version):
        raise CorruptSnapshot(f"{which}: it is of {state.get('model')!r} version {state.get('version')!r}")
    manifest = state.get("manifest")
    if not isinstance(manifest, dict) or not _are_parts(manifest.get("parts")):
        raise CorruptSnapshot(f"{which}: it lists no parts")
    return manifest


def _are_parts(parts: Any) -> bool:
    return isinstance(parts, dict) and all(
        isinstance(p, dict) and isinstance(p.get("sha256"), str) and isinstance(p.get("size"), int)
        for p in parts.values()
    )


def wanted_parts(manifest: State, version: int, names: Any) -> dict[str, Mapping[str, Any]]:
    """Digest and size of the named parts (None: all). Raises StoreError for a name it does not have."""
    parts: dict[str, Mapping[str, Any]] = manifest["parts"]
    if names is None:
        return parts
    missing = sorted(set(names) - parts.keys())
    if missing:
        raise StoreError(f"version {version} has no part {missing[0]!r}; it has {', '.join(sorted(parts))}")
    return {name: parts[name] for name in parts if name in names}


def verified_part(data: bytes | None, name: str, part: Mapping[str, Any], model: str, version: int) -> bytes:
    """The part's bytes. Raises CorruptSnapshot where they are missing or not those of the manifest."""
    which = f"part {name!r} of {model} version {version}"
    if data is None:
        raise CorruptSnapshot(f"{which}: its blob {part['sha256']} is missing")
    if len(data) != part["size"]:
        raise CorruptSnapshot(f"{which}: {len(data)} bytes, the manifest says {part['size']}")
    if digest(data) != part["sha256"]:
        raise CorruptSnapshot(f"{which}: its bytes do not match their digest {part['sha256']}")
    return data


def encode_turn(turn: Turn) -> bytes:
    """The turn as it is journaled."""
    return encode(
        {
            "number": turn.number,
            "ranges": [[lane.topic, lane.partition, *span] for lane, span in turn.ranges.items()],
            "now_ms": turn.now_ms,
            "commands": [dict(command) for command in turn.commands],
        }
    )


def decode_turn(data: bytes) -> Turn:
    """The turn in these bytes. Raises CorruptSnapshot."""
    state = decode(data)
    try:
        ranges = {Lane(topic, lane): (start, end) for topic, lane, start, end in state["ranges"]}
        return Turn(state["number"], ranges, state["now_ms"], tuple(state["commands"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptSnapshot(f"not a turn: {error!r}") from None


def decode_rollout(data: bytes | None) -> Rollout:
    """The rollout in these bytes; `Rollout()` where there are none. Raises CorruptSnapshot."""
    if data is None:
        return Rollout()
    state = decode(data)
    try:
        return Rollout.from_state(state)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptSnapshot(f"not a rollout: {error!r}") from None


def require_command(command: Mapping[str, Any]) -> bytes:
    """The command as it is queued. Raises StoreError where it lacks "id" or "do"."""
    for key in ("id", "do"):
        if not isinstance(command.get(key), str) or not command[key]:
            raise StoreError(f'a command needs a text "{key}", not {command.get(key)!r}')
    return encode(dict(command))


def require_next(model: str, new: Rollout, expected: Rollout) -> None:
    """Raises StoreError where `new` does not follow `expected`."""
    if new.revision != expected.revision + 1:
        raise StoreError(f"rollout of {model}: revision {new.revision} does not follow {expected.revision}")
