"""Who serves: the assignment of lineages to roles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from core.plain import State

Role = Literal["champion", "canary", "shadow"]
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A lineage, served at a version."""

    lineage: str
    version: int


@dataclass(frozen=True, slots=True)
class Rollout:
    """Who answers. Revision 0 with no champion: nothing published yet. Every change is a new revision."""

    revision: int = 0
    champion: Assignment | None = None
    canary: Assignment | None = None
    shadows: tuple[Assignment, ...] = ()
    canary_share: float = 0.0
    reason: str = field(default="", compare=False)  # why this revision came about, for the audit

    def assigned(self) -> list[tuple[Role, Assignment]]:
        """Every role that is filled, champion first."""
        rows: list[tuple[Role, Assignment]] = []
        if self.champion is not None:
            rows.append(("champion", self.champion))
        if self.canary is not None:
            rows.append(("canary", self.canary))
        rows.extend(("shadow", shadow) for shadow in self.shadows)
        return rows

    def state(self) -> State:
        """The rollout as plain data."""

        def row(a: Assignment | None) -> list[str | int] | None:
            return None if a is None else [a.lineage, a.version]

        return {
            "revision": self.revision,
            "champion": row(self.champion),
            "canary": row(self.canary),
            "shadows": [row(a) for a in self.shadows],
            "canary_share": self.canary_share,
            "reason": self.reason,
        }

    @classmethod
    def from_state(cls, state: State) -> Rollout:
        def read(row: list[str | int] | None) -> Assignment | None:
            return None if row is None else Assignment(str(row[0]), int(row[1]))

        return cls(
            state["revision"],
            read(state["champion"]),
            read(state["canary"]),
            tuple(a for a in map(read, state["shadows"]) if a is not None),
            state["canary_share"],
            state["reason"],
        )
