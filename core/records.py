"""Records as they lie in a log, and the turns that the fold is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from core.plain import IntArray, Plain

Headers = Sequence[tuple[str, bytes]]


class Lane(NamedTuple):
    """One partition of one topic: an ordered sequence of records with growing offsets."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Records(Protocol):
    """Some records of one lane in offset order, as columns. Offsets may have gaps (compaction,
    transaction markers). Adapters may compute the less used columns only when asked."""

    @property
    def offsets(self) -> IntArray: ...

    @property
    def values(self) -> list[bytes | None]:
        """The bytes; None is a tombstone."""
        ...

    @property
    def timestamps_ms(self) -> IntArray: ...

    @property
    def keys(self) -> list[bytes | None]: ...

    @property
    def headers(self) -> Sequence[Headers]:
        """One for each record, or empty where no record has any."""
        ...

    @property
    def next_offset(self) -> int:
        """Where to go on reading: above the last offset, past any gap known to follow it."""
        ...

    def upto(self, n: int) -> Records:
        """The first n records; `next_offset` is then the offset of the record after them."""
        ...

    def after(self, n: int) -> Records:
        """All but the first n records."""
        ...

    def then(self, more: Records) -> Records:
        """These, and behind them `more`, which a later read of the same lane in the same log gave."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PlainRecords:
    """Records with every column at hand."""

    offsets: IntArray
    values: list[bytes | None]
    timestamps_ms: IntArray
    keys: list[bytes | None]
    next_offset: int
    headers: Sequence[Headers] = ()

    def upto(self, n: int) -> PlainRecords:
        if n >= len(self.values):
            return self
        return PlainRecords(
            self.offsets[:n],
            self.values[:n],
            self.timestamps_ms[:n],
            self.keys[:n],
            int(self.offsets[n]),
            self.headers[:n],
        )

    def after(self, n: int) -> PlainRecords:
        return PlainRecords(
            self.offsets[n:],
            self.values[n:],
            self.timestamps_ms[n:],
            self.keys[n:],
            self.next_offset,
            self.headers[n:],
        )

    def then(self, more: Records) -> PlainRecords:
        headers: list[Headers] = []
        if self.headers or more.headers:
            for part in (self, more):
                headers.extend(part.headers or [()] * len(part))
        return PlainRecords(
            np.concatenate([self.offsets, more.offsets]),
            [*self.values, *more.values],
            np.concatenate([self.timestamps_ms, more.timestamps_ms]),
            [*self.keys, *more.keys],
            more.next_offset,
            headers,
        )

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record to append. Without a timestamp the log stamps it; without a partition the key's hash
    (or, with no key, the log) chooses one."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What one step of a model's fold may see of the world: which records (ranges [from, to) per lane),
    what time it was, and which commands had come. Journaled before it is applied."""

    number: int
    ranges: Mapping[Lane, tuple[int, int]]
    now_ms: int
    commands: Sequence[Mapping[str, Plain]] = field(default=())
