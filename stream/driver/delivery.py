"""Carries a step's effects to the log: dead letters, alerts, predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from core.config import ModelConfig
from core.errors import BadRecord, LogError
from core.plain import FloatArray
from core.records import Lane, OutRecord
from stream.fold.effects import Effects, Predicted
from stream.fold.inputs import Place, TurnInput
from stream.log.log import Log

DEADLETTER, ALERTS, PREDICTIONS = "deadletter", "alerts", "predictions"
_KEPT_WHEN_TOO_LARGE, _KEPT_WHEN_TINY = 65_536, 512
_encode = msgspec.json.Encoder().encode


class Delivery:
    """Writes to the topics `{prefix}.deadletter`, `{prefix}.alerts` and `{prefix}.predictions`. Every
    record carries `riverrun-turn` and `riverrun-index`, so that a reader can drop what a crash made us
    send twice."""

    def __init__(self, log: Log, model: str, config: ModelConfig, prefix: str) -> None:
        self._log = log
        self._model = model
        self._config = config
        self._topics = {name: f"{prefix}.{name}" for name in (DEADLETTER, ALERTS, PREDICTIONS)}

    @property
    def topics(self) -> list[str]:
        """The topics written to; they must exist."""
        wanted = (DEADLETTER, ALERTS, PREDICTIONS) if self._config.predictions else (DEADLETTER, ALERTS)
        return [self._topics[name] for name in wanted]

    def has_any(self, effects: Effects) -> bool:
        """Whether these effects bring anything to the log."""
        told = self._config.predictions and effects.predicted
        return bool(effects.dead_letters or effects.alerts or told)

    def deliver(self, inputs: TurnInput, effects: Effects, classes: list[Any]) -> None:
        """Returns once the log has everything. Raises LogUnavailable; delivering again is safe."""
        turn = str(inputs.turn.number).encode()
        self._dead_letters(inputs, effects, turn)
        if effects.alerts:
            rows = [_encode({"model": self._model, **alert}) for alert in effects.alerts]
            self._append(ALERTS, rows, turn)
        if self._config.predictions and effects.predicted:
            rows = [row for predicted in effects.predicted for row in self._rows(predicted, classes)]
            self._append(PREDICTIONS, rows, turn)

    def _append(self, topic: str, rows: list[bytes], turn: bytes) -> None:
        records = [
            OutRecord(row, self._model.encode(), headers=_mark(turn, index)) for index, row in enumerate(rows)
        ]
        self._log.append(self._topics[topic], records)

    def _dead_letters(self, inputs: TurnInput, effects: Effects, turn: bytes) -> None:
        if not effects.dead_letters:
            return
        letters = [
            self._letter(
                inputs, place, error, (*_mark(turn, index), ("riverrun-model", self._model.encode()))
            )
            for index, (place, error) in enumerate(effects.dead_letters)
        ]
        topic = self._topics[DEADLETTER]
        try:
            self._log.append(topic, letters)
        except LogError as error:
            if error.retriable:
                raise
            # Some letter is larger than the topic takes.
            for letter in letters:
                self._one_by_one(topic, letter)

    def _one_by_one(self, topic: str, letter: OutRecord) -> None:
        """As it is where the topic takes it, else its start, else what its headers say."""
        for kept in (None, _KEPT_WHEN_TOO_LARGE, _KEPT_WHEN_TINY, 0):
            try:
                return self._log.append(topic, [letter if kept is None else _shortened(letter, kept)])
            except LogError as error:
                if error.retriable or kept == 0:
                    raise
        return None

    def _letter(
        self, inputs: TurnInput, place: Place, error: BadRecord, marks: tuple[tuple[str, bytes], ...]
    ) -> OutRecord:
        key, value = inputs.value(place)
        return OutRecord(value, key, headers=(*_origin(place.lane, place.offset, error), *marks))

    def _rows(self, predicted: Predicted, classes: list[Any]) -> list[bytes]:
        answer = answers(self._config.task == "regression", classes)
        ids, times = predicted.events.ids.tolist(), predicted.events.ts_ms.tolist()
        return [
            _encode({"id": name, "ts": ts, "model": self._model, **answer(row)})
            for name, ts, row in zip(ids, times, predicted.scores, strict=True)
        ]


def answers(regression: bool, classes: list[Any]) -> Callable[[FloatArray], dict[str, Any]]:
    """How one row of scores is told to people: a value, or a label with its probabilities."""
    if regression:
        return lambda row: {"value": float(row[0])}
    names = [msgspec.json.encode(c).decode() if not isinstance(c, str) else c for c in classes]

    def answer(row: FloatArray) -> dict[str, Any]:
        known = row.any()
        label = classes[int(row.argmax())] if known else None
        return {"label": label, "probabilities": dict(zip(names, row.tolist(), strict=False))}

    return answer


def _mark(turn: bytes, index: int) -> tuple[tuple[str, bytes], ...]:
    return (("riverrun-turn", turn), ("riverrun-index", str(index).encode()))


def _origin(lane: Lane, offset: int, error: BadRecord) -> tuple[tuple[str, bytes], ...]:
    return (
        ("riverrun-topic", lane.topic.encode()),
        ("riverrun-partition", str(lane.partition).encode()),
        ("riverrun-offset", str(offset).encode()),
        ("riverrun-reason", error.reason.encode()),
        ("riverrun-detail", error.detail[:1_000].encode("utf-8", "replace")),
    )


def _shortened(letter: OutRecord, kept: int) -> OutRecord:
    """With the first bytes of its value, its key where that is no larger, and the size that the value had."""
    size = ("riverrun-truncated-from", str(len(letter.value or b"")).encode())
    value = None if letter.value is None else letter.value[:kept]
    key = None if letter.key is None or len(letter.key) > kept else letter.key
    return OutRecord(value, key, headers=(*letter.headers, size))
