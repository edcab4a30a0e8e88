"""Records of one Kafka partition; columns are computed when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, cast

import numpy as np
from confluent_kafka import Message

from core.plain import IntArray
from core.records import Headers, Records

# Unbound methods for `map`: one call a record, without a frame of Python's around it. The casts say what
# the client returns for messages without an error.
_value = cast("Callable[[Message], bytes | None]", Message.value)
_key = cast("Callable[[Message], bytes | None]", Message.key)
_offset = cast("Callable[[Message], int]", Message.offset)
_timestamp = cast("Callable[[Message], tuple[int, int]]", Message.timestamp)
_headers = cast("Callable[[Message], Any]", Message.headers)
_second = itemgetter(1)


class KafkaRecords:
    """Messages in offset order, at least one where `next_offset` is not given."""

    def __init__(self, messages: list[Message], next_offset: int | None = None) -> None:
        self._messages = messages
        self.next_offset = _offset(messages[-1]) + 1 if next_offset is None else next_offset

    @cached_property
    def values(self) -> list[bytes | None]:
        return list(map(_value, self._messages))

    @cached_property
    def keys(self) -> list[bytes | None]:
        return list(map(_key, self._messages))

    @cached_property
    def offsets(self) -> IntArray:
        return np.fromiter(map(_offset, self._messages), np.int64, len(self._messages))

    @cached_property
    def timestamps_ms(self) -> IntArray:
        return np.fromiter(map(_second, map(_timestamp, self._messages)), np.int64, len(self._messages))

    @cached_property
    def headers(self) -> Sequence[Headers]:
        found = list(map(_headers, self._messages))
        if not any(found):
            return ()
        return [[(name, value or b"") for name, value in each or ()] for each in found]

    def upto(self, n: int) -> KafkaRecords:
        if n >= len(self._messages):
            return self
        return self._part(slice(0, n), _offset(self._messages[n]))

    def after(self, n: int) -> KafkaRecords:
        return self._part(slice(n, None), self.next_offset)

    def then(self, more: Records) -> KafkaRecords:
        if not isinstance(more, KafkaRecords):
            raise TypeError(f"records of Kafka, and behind them {type(more).__name__}")
        whole = KafkaRecords(self._messages + more._messages, more.next_offset)
        if "timestamps_ms" in self.__dict__:
            whole.__dict__["timestamps_ms"] = np.concatenate([self.timestamps_ms, more.timestamps_ms])
        return whole

    def _part(self, rows: slice, next_offset: int) -> KafkaRecords:
        part = KafkaRecords(self._messages[rows], next_offset)
        if "timestamps_ms" in self.__dict__:  # asked for already: a part need not ask again
            part.__dict__["timestamps_ms"] = self.timestamps_ms[rows]
        return part

    def __len__(self) -> int:
        return len(self._messages)
