"""Reads one Kafka topic from explicit offsets."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from time import monotonic

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from core.errors import LogUnavailable, OffsetOutOfRange
from core.records import Lane, Records
from stream.log.kafka_connection import KafkaMetadata, Reachability
from stream.log.kafka_errors import log_error, passes
from stream.log.kafka_records import KafkaRecords
from stream.log.kafka_settings import KafkaSettings
from stream.log.topics import out_of_range

PROBE_S = 2.0  # how long a reader that saw all brokers go asks whether they are back
VERIFY_S = 2.0  # how often an idle reader makes sure that it still waits for something

_error = Message.error
_partition = Message.partition


class KafkaReader:
    """A consumer of one topic's partitions, so that no topic's backlog stands in another's way.

    While the caller reads on where the last read ended, the assignment stays and the client fetches ahead;
    else the partitions are assigned anew at the offsets asked for."""

    def __init__(self, topic: str, settings: KafkaSettings, metadata: KafkaMetadata) -> None:
        self._topic = topic
        self._settings = settings
        self._metadata = metadata
        self._reach = Reachability()
        self._verified_s = monotonic()
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        self._consumer = self._open()

    def go_to(self, positions: Mapping[int, int]) -> None:
        """Makes sure that the next records are those from these offsets on. Partitions that are left out
        now and then only pause: going to an offset anew costs up to a tenth of a second. Raises
        UnknownTopic, LogUnavailable."""
        if self._positions and positions.items() <= self._positions.items():
            self._pause(self._positions.keys() - positions.keys())
            return
        self._positions = {}
        for partition in positions.keys() - range(self._metadata.partitions(self._topic)):
            self._metadata.check(Lane(self._topic, partition))
        self._consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in positions.items()])
        self._positions = dict(positions)
        self._paused = set()

    def _pause(self, partitions: set[int]) -> None:
        """Lets exactly these pause, of those assigned."""
        if partitions != self._paused:
            named = {p: TopicPartition(self._topic, p) for p in partitions ^ self._paused}
            if more := partitions - self._paused:
                self._consumer.pause([named[p] for p in more])
            if fewer := self._paused - partitions:
                self._consumer.resume([named[p] for p in fewer])
            self._paused = partitions

    def take(self, limit: int, wait_s: float) -> Mapping[Lane, Records]:
        """At most `limit` records: what is at hand, else what comes first within `wait_s`."""
        try:
            # What is at hand comes without waiting; asking for many with a timeout would wait for a full
            # batch, so the wait is for one record.
            messages = self._consumer.consume(limit, 0)
            if not messages and wait_s > 0:
                messages = self._consumer.consume(1, wait_s)
                if messages and limit > 1:
                    messages += self._consumer.consume(limit - 1, 0)
        except KafkaException as error:
            self._positions = {}
            raise log_error(f"reading topic {self._topic}", error.args[0]) from None
        if not messages:
            return {}
        if any(map(_error, messages)):
            messages = self._without_errors(messages)
        self._reach.is_back()
        return self._by_lane(messages)

    def check(self) -> None:
        """For a reader that found nothing. Raises LogUnavailable where no broker has answered for long,
        UnknownTopic where the topic is gone and OffsetOutOfRange where it was made anew or cut: to the
        client, all of these look like a topic without news."""
        if self._reach.down_since_s is None:
            if monotonic() - self._verified_s > VERIFY_S:
                self._verified_s = monotonic()
                for partition, offset in self._positions.items():
                    lane = Lane(self._topic, partition)
                    oldest, following = self._metadata.bounds(lane)
                    if not oldest <= offset <= following:
                        self._positions = {}
                        raise OffsetOutOfRange(out_of_range(lane, offset, oldest, following))
            return
        if self._reach.down_for_s() < self._settings.reach_s:
            return
        said = self._reach.said
        try:
            self._consumer.list_topics(self._topic, timeout=min(PROBE_S, self._settings.reach_s))
        except KafkaException:
            raise LogUnavailable(
                f"reading topic {self._topic}: no broker of {self._settings.servers} answers"
                + (f" ({said})" if said else "")
            ) from None
        self._reach.is_back()

    def close(self) -> None:
        self._consumer.close()

    def _open(self) -> Consumer:
        consumer: Consumer = self._settings.build(
            Consumer, self._settings.for_consumer(), error_cb=self._reach.on_error
        )
        return consumer

    def _by_lane(self, messages: list[Message]) -> Mapping[Lane, Records]:
        if len(self._positions) == 1:
            partitioned = {next(iter(self._positions)): messages} if messages else {}
        else:
            partitioned = {}
            for partition, run in groupby(messages, _partition):
                partitioned.setdefault(partition or 0, []).extend(run)
        found: dict[Lane, Records] = {}
        for partition, own in partitioned.items():
            records = found[Lane(self._topic, partition)] = KafkaRecords(own)
            self._positions[partition] = records.next_offset
        return found

    def _without_errors(self, messages: list[Message]) -> list[Message]:
        """The messages that are records. Raises for an error that reading on does not mend; then nothing
        has been read."""
        for message in messages:
            error = message.error()
            if error is None or passes(error):
                continue
            lane = Lane(self._topic, message.partition() or 0)
            offset = self._positions.get(lane.partition, 0)
            self._positions = {}
            if error.fatal():
                self._consumer.close()
                self._consumer = self._open()
            raised = log_error(f"reading {lane}", error)
            if isinstance(raised, OffsetOutOfRange):
                raise OffsetOutOfRange(out_of_range(lane, offset, *self._metadata.bounds(lane)))
            raise raised
        return [message for message in messages if message.error() is None]
