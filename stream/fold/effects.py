"""What a step wants done in the world: the driver does it, in this order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.batch import Batch
from core.errors import BadRecord
from core.plain import FloatArray, Plain
from stream.fold.inputs import Place


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the champion said about the turn's events."""

    events: Batch
    scores: FloatArray  # [events, classes], or [events, 1]


@dataclass(slots=True)
class Effects:
    """The outcome of one step."""

    events: int = 0  # good ones, duplicates left out
    labels: int = 0
    examples: int = 0  # events whose label was found
    learned: int = 0
    dead_letters: list[tuple[Place, BadRecord]] = field(default_factory=list)
    alerts: list[dict[str, Plain]] = field(default_factory=list)
    predicted: list[Predicted] = field(default_factory=list)
    drifts: list[dict[str, Any]] = field(default_factory=list)  # {at, detector}
    roles_changed: bool = False
    answers: list[dict[str, Plain]] = field(default_factory=list)  # {id, ok, detail} of each command
