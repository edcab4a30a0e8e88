"""The port to the log. Kafka, Redis Streams and memory pass the same contract tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from core.records import Lane, OutRecord, Records


class Log(Protocol):
    """Topics of lanes. Reading is by explicit offsets and changes nothing in the log; only committed
    records are seen, in offset order. One reader thread and any number of appending threads may use
    the same object."""

    def lanes(self, topic: str) -> Sequence[Lane]:
        """The topic's lanes by partition. Raises UnknownTopic."""
        ...

    def create(self, topic: str, partitions: int = 1) -> None:
        """Makes the topic; does nothing where it is there already."""
        ...

    def read(self, start: Mapping[Lane, int], limit: int, wait_s: float) -> Mapping[Lane, Records]:
        """At most `limit` records a lane from the given offsets on. Returns as soon as some lane has
        records, with what is at hand, else after `wait_s` with an empty mapping; lanes without records
        are left out.

        Raises UnknownTopic, OffsetOutOfRange (a start below the oldest kept record, or above the next
        one), LogUnavailable.
        """
        ...

    def append(self, topic: str, records: Sequence[OutRecord]) -> None:
        """Appends in order (a lane's records keep theirs); returns once the log has all of them, or
        raises UnknownTopic, LogError (the record is too large, ...), LogUnavailable."""
        ...

    def bounds(self, lane: Lane) -> tuple[int, int]:
        """Offset of the oldest record kept, and the offset that the next record will get or exceed."""
        ...

    def close(self) -> None:
        """Ends threads and connections; the object is not used after."""
        ...
