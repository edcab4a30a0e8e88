"""What tests of the fold share: configurations, records on lanes, and turns cut out of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from core.config import ModelConfig
from core.records import Lane, PlainRecords, Turn
from snapshots.codec import decode, encode
from stream.driver.reading import LaneReader
from stream.driver.recovery import step
from stream.fold.effects import Effects
from stream.fold.fold import Fold
from stream.fold.inputs import TurnInput
from stream.log.memory_log import MemoryLog

EVENTS, LABELS = "e", "l"
HUGE_MS = 10**12


@dataclass(frozen=True, slots=True)
class Rec:
    """A record on its way to a lane. `at_ms` is the log's timestamp; the order of a list of these is the
    order of the log where the timestamps grow."""

    lane: Lane
    value: bytes | None
    at_ms: int
    key: bytes | None = None


def config(*, carried: bool = False, **changes: Any) -> ModelConfig:
    base: dict[str, Any] = {
        "task": "binary",
        "events": EVENTS,
        "labels": None if carried else LABELS,
        "features": {"x": "float"},
        "window": {"count": 1},
        "drift": {"detectors": []},
        "join": {"expire_after": HUGE_MS},
        "replay": {"capacity": 1_000},
    }
    return ModelConfig.model_validate({**base, **changes})


def event(
    name: str, x: float = 0.0, ts: int = 0, *, at: int | None = None, lane: int = 0, **more: Any
) -> Rec:
    """An event; with `label=…` it carries its label."""
    value = json.dumps({"id": name, "ts": ts, "features": {"x": x}, **more}).encode()
    return Rec(Lane(EVENTS, lane), value, ts if at is None else at)


def label(name: str, value: Any = True, ts: int = 0, *, at: int | None = None, lane: int = 0) -> Rec:
    data = json.dumps({"id": name, "ts": ts, "label": value}).encode()
    return Rec(Lane(LABELS, lane), data, ts if at is None else at)


def tombstone(name: str, at: int = 0, *, topic: str = EVENTS, lane: int = 0) -> Rec:
    return Rec(Lane(topic, lane), None, at, name.encode())


class Feed:
    """Gives a fold its records, turn by turn."""

    def __init__(self, model: ModelConfig, fold: Fold | None = None) -> None:
        self.config = model
        self.fold = fold or Fold(model)
        self._offsets: dict[Lane, int] = {}
        self._reader = LaneReader(MemoryLog(), model, limit=1)

    def turn(
        self,
        records: Sequence[Rec],
        now_ms: int = HUGE_MS,
        commands: Sequence[Mapping[str, Any]] = (),
    ) -> Effects:
        return self.turn_with_inputs(records, now_ms, commands)[1]

    def turn_with_inputs(
        self,
        records: Sequence[Rec],
        now_ms: int = HUGE_MS,
        commands: Sequence[Mapping[str, Any]] = (),
    ) -> tuple[TurnInput, Effects]:
        lanes: dict[Lane, list[Rec]] = {}
        for record in records:
            lanes.setdefault(record.lane, []).append(record)
        sources, ranges = {}, {}
        for lane, rows in lanes.items():
            start = self._offsets.get(lane, 0)
            stop = self._offsets[lane] = start + len(rows)
            read = PlainRecords(
                np.arange(start, stop),
                [r.value for r in rows],
                np.array([r.at_ms for r in rows], dtype=np.int64),
                [r.key for r in rows],
                stop,
            )
            sources[lane] = self._reader.decode(lane, read)
            ranges[lane] = (start, stop)
        turn = Turn(self.fold.turn + 1, ranges, now_ms, tuple(commands))
        return step(self.fold, self.config, turn, sources)

    def restart(self) -> None:
        """Goes on with a fold made from the bytes of this one."""
        self.fold = Fold.from_parts(self.config, read_parts(parts_bytes(self.fold)))


def cut(records: Sequence[Rec], at: Sequence[int]) -> list[Sequence[Rec]]:
    """The records in turns that end at these places."""
    edges = [0, *sorted({a for a in at if 0 < a < len(records)}), len(records)]
    return [records[a:b] for a, b in pairwise(edges)]


def parts_bytes(fold: Fold) -> dict[str, bytes]:
    return {name: encode(state) for name, state in fold.parts().items()}


def read_parts(parts: Mapping[str, bytes]) -> dict[str, Any]:
    return {name: decode(data) for name, data in parts.items()}


def learned(fold: Fold) -> list[tuple[str, float]]:
    """(id, label) of every example learned, in order; the buffer must be large enough for all."""
    rows = fold.buffer.sample(len(fold.buffer), np.random.default_rng(0))
    if not len(rows) or rows.y is None:
        return []
    return list(zip(rows.ids.tolist(), rows.y.tolist(), strict=True))


def lost(fold: Fold) -> tuple[int, int]:
    """How many good events and labels are accounted for nowhere; both must be 0."""
    counts = fold.join.counts
    if fold.config.labels is None:
        return fold.events - fold.examples - fold.unlabelled, 0
    events, labels, matched = (
        fold.events - fold.join.waiting(),
        fold.labels - fold.join.early(),
        fold.examples,
    )
    if fold.config.join.on_expiry == "negative" and fold.config.task != "regression":
        matched -= counts["expired_event"] + counts["evicted_event"]  # examples too, but of no label
    events -= matched + sum(counts[n] for n in ("expired_event", "evicted_event", "forgotten_event"))
    told = ("late_label", "duplicate_label", "conflicting_label", "expired_label", "evicted_label")
    return events, labels - matched - sum(counts[n] for n in (*told, "forgotten_label"))
