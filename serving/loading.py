"""From a snapshot to something that answers: verified, built, and warmed up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from core.batch import Batch
from core.config import LearnerConfig, LimitsConfig
from core.errors import CorruptSnapshot
from core.plain import State, objects
from core.rollout import Role
from core.schema import Schema, Task
from learners.learner import Learner
from serving.interface import Interface
from snapshots import codec
from snapshots.store import Snapshot

FORMAT = 1  # of the manifest

Build = Callable[[LearnerConfig, Schema, Task, int, State | None], Learner]


@dataclass(frozen=True, slots=True)
class Loaded:
    """One lineage at one version, ready to answer. Never changes."""

    lineage: str
    version: int
    learner: Learner
    manifest: State
    task: Task
    schema_digest: str
    classes: tuple[Any, ...]  # label values in code order; empty in regression
    names: tuple[str, ...]  # the same as keys of "probabilities"
    created_at_ms: int
    trained_through: str | None  # RFC 3339; None: learned nothing yet


@dataclass(frozen=True, slots=True)
class Served:
    """Who answers for one model at one moment. Swapped as a whole, so whoever holds one sees one
    consistent assignment however long it takes to answer."""

    model: str
    revision: int
    interface: Interface
    champion: Loaded
    canary: Loaded | None = None
    canary_share: float = 0.0
    shadows: tuple[Loaded, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)  # role -> why it isn't as assigned
    retry: bool = False  # whether loading again may help

    def filled(self) -> Iterator[tuple[Role, Loaded]]:
        """Every role that is filled, champion first."""
        yield "champion", self.champion
        if self.canary is not None:
            yield "canary", self.canary
        for shadow in self.shadows:
            yield "shadow", shadow


def load(snapshot: Snapshot, lineage: str, build_learner: Build, factories: Collection[str]) -> Loaded:
    """The lineage out of a snapshot that holds its part. A learner of a factory kind ("module:function")
    is built only where `factories` names it: a snapshot must not choose what code runs here. Raises
    CorruptSnapshot where the manifest is not one this code reads, where it does not fit together, or
    where the learner does not come to life."""
    try:
        return _load(snapshot, lineage, build_learner, factories)
    except Exception as error:  # whatever a learner raises on a state that is not its own
        kind = "" if isinstance(error, CorruptSnapshot) else f"{type(error).__name__}: "
        what = f"{snapshot.model} version {snapshot.version}, lineage {lineage!r}"
        raise CorruptSnapshot(f"{what}: {kind}{error}") from error


def _load(snapshot: Snapshot, lineage: str, build_learner: Build, factories: Collection[str]) -> Loaded:
    manifest = snapshot.manifest
    if manifest.get("format") != FORMAT:
        raise CorruptSnapshot(f"format {manifest.get('format')!r}, this code reads format {FORMAT}")
    if manifest["model"] != snapshot.model:
        raise CorruptSnapshot(f"a manifest of {manifest['model']!r}")
    schema = Schema.from_state(manifest["schema"])
    if schema.digest() != manifest["schema_digest"]:
        raise CorruptSnapshot("the schema does not match its digest")
    if lineage not in manifest["lineages"]:
        raise CorruptSnapshot(f"lineages {sorted(manifest['lineages'])} only")
    config = LearnerConfig(**manifest["learner"])
    if ":" in config.kind and config.kind not in factories:
        raise CorruptSnapshot(f"learner kind {config.kind!r} is not among those configured here")
    state = codec.decode(snapshot.parts[manifest["lineages"][lineage]["part"]])
    classes = tuple(manifest["classes"] or ())
    through_ms = manifest["trained_through_ms"]
    loaded = Loaded(
        lineage=lineage,
        version=snapshot.version,
        learner=build_learner(config, schema, manifest["task"], manifest["seed"], state),
        manifest=manifest,
        task=manifest["task"],
        schema_digest=manifest["schema_digest"],
        classes=classes,
        names=tuple(class_name(value) for value in classes),
        created_at_ms=manifest["created_at_ms"],
        trained_through=rfc3339(through_ms) if through_ms else None,
    )
    warm(loaded, schema)
    return loaded


def interface_of(manifest: State) -> Interface:
    """The typed requests of a manifest's model."""
    return Interface(Schema.from_state(manifest["schema"]), LimitsConfig(**manifest["limits"]))


def warm(loaded: Loaded, schema: Schema) -> None:
    """Predicts one made-up row, so that compiled code is ready before the first client asks, and a model
    that answers nonsense is found here. Raises CorruptSnapshot for a score that is not finite."""
    cells: list[Any] = ["" for _ in schema.categories] + [{} if schema.open else 0.0 for _ in schema.anys]
    row = np.empty((1, len(cells)), dtype=object)
    row[0, :] = cells
    batch = Batch(
        objects(["warm"]),
        np.array([loaded.created_at_ms], dtype=np.int64),
        np.zeros((1, len(schema.numeric))),
        row,
        n_classes=len(loaded.classes),
    )
    scores = loaded.learner.predict(batch).scores
    width = 1 if loaded.task == "regression" else len(loaded.classes)
    if scores.shape != (1, width) or not np.isfinite(scores).all():
        raise CorruptSnapshot(f"it answers a plain row with {scores.tolist()}")


def class_name(value: Any) -> str:
    """A label value as a JSON key: text as it is, booleans as JSON writes them, integers as digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def rfc3339(ms: int) -> str:
    """Epoch milliseconds as RFC 3339 in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
