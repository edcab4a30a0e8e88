"""What a snapshot says about itself: all that a predictor needs beside the learner's state."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version as library_version
from typing import Any

from core.config import ModelConfig
from core.contract import contract
from core.plain import State
from core.records import Lane
from stream.fold.fold import Fold

FORMAT = 1
_LIBRARIES = ("riverrun", "river", "numpy", "numba")


def describe(
    model: str,
    config: ModelConfig,
    fold: Fold,
    offsets: Mapping[Lane, int],
    parent: int,
    lag_records: int | None,
) -> dict[str, Any]:
    """The manifest of a snapshot of this fold, whose next records are at `offsets`."""
    counters = dict(sorted(fold.join.counts.items()))
    counters["unlabelled"] = fold.unlabelled
    counters["waiting_events"] = fold.join.waiting()
    counters["waiting_labels"] = fold.join.early()
    return contract(config) | {
        "format": FORMAT,
        "model": model,
        "created_at_ms": fold.now_ms,
        "trained_through_ms": fold.trained_through_ms,
        "turn": fold.turn,
        "parent": parent,
        "offsets": [[lane.topic, lane.partition, offset] for lane, offset in sorted(offsets.items())],
        "classes": list(fold.classes.values),
        "learner": config.learner.model_dump(),
        "seed": config.seed,
        "lineages": fold.contest.describe(),
        "champion": fold.contest.champion.name,
        "metrics": fold.contest.served.report(),
        "baselines": fold.baselines.report(),
        "drift": {
            "detections": fold.contest.detections,
            "retrainings": fold.contest.retrainings,
            "drifts": list(fold.contest.drifts),
        },
        "counts": {
            "events": fold.events,
            "labels": fold.labels,
            "examples": fold.examples,
            "learned": fold.learned,
        },
        "counters": counters,
        "lag": {"records": lag_records},
        "dead_letters": dict(sorted(fold.dead_letters.items())),
        "libraries": {name: library_version(name) for name in _LIBRARIES},
    }


def read_offsets(manifest: State) -> dict[Lane, int]:
    """The offsets that `describe` wrote."""
    return {Lane(topic, partition): offset for topic, partition, offset in manifest["offsets"]}
