"""What the predictor tells about its models: taken from the manifests that serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serving.loading import Loaded, Served, rfc3339


def summary(model: str, served: Served | None, waiting: str | None, now_ms: int) -> dict[str, Any]:
    """One row of the list of models."""
    if served is None:
        return {"model": model, "ready": False, "reason": waiting, "roles": []}
    return {
        "model": model,
        "ready": True,
        "task": served.champion.task,
        "revision": served.revision,
        "roles": [_role(role, loaded, now_ms) for role, loaded in served.filled()],
    }


def details(served: Served, versions: Sequence[int] | None, now_ms: int) -> dict[str, Any]:
    """One model: its roles, the versions kept (None: the store cannot say now), and what the newest
    version that serves here knows of quality, drift and lag."""
    newest = max((loaded for _, loaded in served.filled()), key=lambda loaded: loaded.version)
    manifest = newest.manifest
    out = summary(served.model, served, None, now_ms)
    out |= {
        "canary_share": served.canary_share,
        "problems": served.problems,
        "versions": None if versions is None else list(versions),
        "features": {feature.name: feature.spec for feature in served.interface.schema.features},
        "classes": list(newest.classes) or None,
        "events": manifest["events"],
        "labels": manifest["labels"],
        "as_of_version": newest.version,
    }
    for key in ("metrics", "baselines", "drift", "counters", "lag"):
        out[key] = manifest.get(key)
    return out


def _role(role: str, loaded: Loaded, now_ms: int) -> dict[str, Any]:
    lineage = loaded.manifest["lineages"][loaded.lineage]
    return {
        "role": role,
        "version": loaded.version,
        "lineage": loaded.lineage,
        "created_at": rfc3339(loaded.created_at_ms),
        "trained_through": loaded.trained_through,
        "staleness_s": max(0, now_ms - loaded.created_at_ms) / 1000,
        "examples": lineage.get("examples"),
        "metrics": lineage.get("metrics"),
    }
