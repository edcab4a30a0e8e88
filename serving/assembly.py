"""Out of a rollout, what serves: loads what is missing, keeps what is at hand."""

from __future__ import annotations

from collections.abc import Callable, Collection

from core.errors import CorruptSnapshot, NotReady
from core.rollout import Assignment, Role, Rollout
from serving.interface import Interface
from serving.loading import Build, Loaded, Served, interface_of, load
from snapshots.store import SnapshotStore

Count = Callable[[str, str], None]  # (model, outcome) of one load


class Assembler:
    """Makes each `Served` from a rollout and the one before. Used by one thread."""

    def __init__(
        self, store: SnapshotStore, build_learner: Build, factories: Collection[str], count: Count
    ) -> None:
        self._store = store
        self._build = build_learner
        self._factories = frozenset(factories)
        self._count = count
        self._interfaces: dict[str, tuple[tuple[str, str], Interface]] = {}

    def assemble(self, model: str, rollout: Rollout, old: Served | None) -> Served:
        """Loads the lineages and versions that `old` does not hold. A canary or shadow that cannot be
        loaded, or has another schema than the champion, is told in `problems`; its older version of the
        same lineage stays in the role, if there is one. Raises what the champion's load raised."""
        if rollout.champion is None:
            raise NotReady(f"revision {rollout.revision} of {model!r} has no champion")
        at_hand = {} if old is None else {(x.lineage, x.version): x for _, x in old.filled()}
        champion = self._get(model, rollout.champion, at_hand)
        problems: dict[str, str] = {}
        retry = False
        roles: dict[Role, list[Loaded]] = {"canary": [], "shadow": []}
        for role, assignment in rollout.assigned()[1:]:
            try:
                loaded = self._get(model, assignment, at_hand)
            except Exception as error:  # whatever it is, it must not keep the champion from serving
                problems[role], retry = str(error), True
                before = _same(old, role, assignment.lineage)
                if before is None:
                    continue
                loaded = before
            if loaded.schema_digest == champion.schema_digest:
                roles[role].append(loaded)
            else:
                problems[role] = f"version {loaded.version} has another schema than the champion's"
        canary = roles["canary"][0] if roles["canary"] else None
        return Served(
            model=model,
            revision=rollout.revision,
            interface=self._interface(model, champion),
            champion=champion,
            canary=canary,
            canary_share=0.0 if canary is None else rollout.canary_share,
            shadows=tuple(roles["shadow"]),
            problems=problems,
            retry=retry,
        )

    def _get(self, model: str, assignment: Assignment, at_hand: dict[tuple[str, int], Loaded]) -> Loaded:
        found = at_hand.get((assignment.lineage, assignment.version))
        if found is not None:
            return found
        try:
            # One part, not the whole version: the fold's state is large and none of a predictor's business.
            snapshot = self._store.load(model, assignment.version, [f"learner/{assignment.lineage}"])
            loaded = load(snapshot, assignment.lineage, self._build, self._factories)
        except Exception as error:
            self._count(model, "corrupt" if isinstance(error, CorruptSnapshot) else "failed")
            raise
        self._count(model, "ok")
        at_hand[assignment.lineage, assignment.version] = loaded
        return loaded

    def _interface(self, model: str, champion: Loaded) -> Interface:
        # Kept while schema and limits stay: making the typed decoders takes longer than loading.
        key = (champion.schema_digest, repr(sorted(champion.manifest["limits"].items())))
        known = self._interfaces.get(model)
        if known is None or known[0] != key:
            known = self._interfaces[model] = (key, interface_of(champion.manifest))
        return known[1]


def _same(old: Served | None, role: Role, lineage: str) -> Loaded | None:
    if old is None:
        return None
    return next((x for filled, x in old.filled() if filled == role and x.lineage == lineage), None)
