"""Which role answers a request: a stable share of ids goes to the canary."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal


def position(id: str, lineage: str = "") -> float:  # noqa: A002  # an id is called id everywhere
    """Where an id lies in [0, 1) for a canary of this lineage: the same in every process and on every
    machine, and unrelated between lineages, so that different canaries take different users."""
    text = f"{lineage}\0{id}".encode("utf-8", "surrogatepass")
    return (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 11) * 2.0**-53


def route(
    id: str,  # noqa: A002
    canary_share: float,
    lineage: str = "",
) -> Literal["canary", "champion"]:
    """The role that answers this id while `lineage` is the canary. A growing share keeps those who were
    in; 0 takes nobody, 1 everybody."""
    return "canary" if position(id, lineage) < canary_share else "champion"
