"""The log on Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

from core.records import Lane, OutRecord, Records
from stream.log.kafka_connection import KafkaMetadata
from stream.log.kafka_reader import KafkaReader
from stream.log.kafka_settings import REACH_S, KafkaSettings, OptionValue
from stream.log.kafka_writer import KafkaWriter
from stream.log.topics import check_topic

SLICE_S = 0.010  # readers of several topics take turns in waiting; a record waits this long at most
PATIENCE_S = 0.2  # one wait: short enough for signals to be handled


class KafkaLog:
    """Topics of a Kafka cluster. Reads committed records by explicit offsets, outside any consumer group;
    appends through an idempotent producer and returns when the in-sync replicas have the records.

    `servers`: host:port, separated by commas. `options` go to librdkafka as they are, but for those that
    this log's promises rest on. A key's partition is librdkafka's choice (`partitioner`; by default its
    CRC-32, as in the other logs). A timestamp of 0 is stored as 1, since 0 tells librdkafka to use the
    present. `read` returns at most `limit` records a topic, all its lanes together.

    When no broker has answered for `reach_s`, calls raise LogUnavailable ("message.timeout.ms" sets another
    time for appends), and they work again once one does.
    """

    def __init__(
        self, servers: str, options: Mapping[str, OptionValue] | None = None, reach_s: float = REACH_S
    ) -> None:
        self._settings = KafkaSettings(servers, options or {}, reach_s)
        self._metadata = KafkaMetadata(self._settings)
        self._writer = KafkaWriter(self._settings)
        self._readers: dict[str, KafkaReader] = {}
        self._known: set[str] = set()  # topics seen to exist: an append to any other would make it

    def lanes(self, topic: str) -> Sequence[Lane]:
        return [Lane(topic, partition) for partition in range(self._metadata.partitions(topic))]

    def create(self, topic: str, partitions: int = 1) -> None:
        check_topic(topic, partitions)
        self._metadata.create(topic, partitions)
        self._writer.prepare()

    def read(self, start: Mapping[Lane, int], limit: int, wait_s: float) -> Mapping[Lane, Records]:
        deadline = monotonic() + wait_s
        if limit <= 0:
            return {}
        readers = self._readers_at(start)
        found: dict[Lane, Records] = {}
        for reader in readers:
            found.update(reader.take(limit, 0))
        slice_s = PATIENCE_S if len(readers) == 1 else SLICE_S / max(1, len(readers))
        while not found:
            for reader in readers:
                left = deadline - monotonic()
                if left <= 0:
                    break
                found.update(reader.take(limit, 0 if found else min(slice_s, left)))
            if not found and deadline <= monotonic():
                for reader in readers:
                    reader.check()
                break
        return found

    def append(self, topic: str, records: Sequence[OutRecord]) -> None:
        if topic not in self._known:
            self._metadata.partitions(topic)
            self._known.add(topic)
        try:
            self._writer.append(topic, records)
        except Exception:
            self._known.discard(topic)
            raise

    def bounds(self, lane: Lane) -> tuple[int, int]:
        return self._metadata.bounds(lane)

    def close(self) -> None:
        self._writer.close()
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._metadata.close()

    def _readers_at(self, start: Mapping[Lane, int]) -> list[KafkaReader]:
        topics: dict[str, dict[int, int]] = {}
        for lane, offset in start.items():
            topics.setdefault(lane.topic, {})[lane.partition] = offset
        readers = []
        for topic, positions in topics.items():
            reader = self._readers.get(topic)
            if reader is None:
                self._metadata.partitions(topic)  # no consumer for a topic that is not there
                reader = self._readers[topic] = KafkaReader(topic, self._settings, self._metadata)
            reader.go_to(positions)
            readers.append(reader)
        return readers
