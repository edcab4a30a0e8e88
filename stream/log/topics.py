"""Rules that all logs share: names of topics, the choice of a lane, the size of a record."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

from core.errors import LogError
from core.records import Lane, OutRecord

MAX_RECORD_BYTES = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_topic(topic: str, partitions: int) -> None:
    """Raises LogError where a topic cannot be made: names are those that Kafka allows."""
    if not _NAME.fullmatch(topic) or topic in {".", ".."}:
        raise LogError(f"a topic's name is 1 to 249 of A-Z a-z 0-9 . _ -, not {topic!r}")
    if partitions < 1:
        raise LogError(f"topic {topic}: at least one partition, not {partitions}")


def partition_of(key: bytes, partitions: int) -> int:
    """The lane of a key: CRC-32 modulo the number of lanes, which is also librdkafka's default, so a key
    has the same lane in every log."""
    return zlib.crc32(key) % partitions


def spread(topic: str, records: Sequence[OutRecord], partitions: int, keyless: int) -> dict[int, list[int]]:
    """Which records (by index, in order) go to which lane; those with neither partition nor key go to
    lane `keyless`. Raises LogError for a partition that the topic does not have."""
    lanes: dict[int, list[int]] = {}
    for index, record in enumerate(records):
        partition = record.partition
        if partition is None:
            partition = keyless if record.key is None else partition_of(record.key, partitions)
        elif not 0 <= partition < partitions:
            raise LogError(f"topic {topic} has partitions 0 to {partitions - 1}, not {partition}")
        lanes.setdefault(partition, []).append(index)
    return lanes


def record_bytes(record: OutRecord) -> int:
    """The size of a record as limits count it: value, key and headers."""
    size = len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value)
    return size


def check_sizes(topic: str, records: Sequence[OutRecord], limit: int, setting: str) -> None:
    """Raises LogError, before anything is appended, where a record is larger than the log takes."""
    for index, record in enumerate(records):
        size = record_bytes(record)
        if size > limit:
            raise LogError(
                f"record {index} for topic {topic} has {size} bytes, more than {setting} = {limit}"
            )


def out_of_range(lane: Lane, offset: int, oldest: int, following: int) -> str:
    """What to say about an offset that a lane does not have."""
    where = "no longer kept" if offset < oldest else "above the end"
    return f"offset {offset} of {lane} is {where}: it has {oldest} up to {following}"
