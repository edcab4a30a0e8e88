"""What a client hears about its brokers, and the questions one asks of them."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from core.errors import LogError, LogUnavailable, UnknownTopic
from core.records import Lane
from stream.log.kafka_errors import log_error
from stream.log.kafka_settings import KafkaSettings

_LEADERLESS = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}


class Reachability:
    """Listens to a client's errors: since when no broker answers, and what was said last."""

    def __init__(self) -> None:
        self.down_since_s: float | None = None
        self.said = ""

    def on_error(self, error: KafkaError) -> None:
        """The client's error callback."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            if self.down_since_s is None:
                self.down_since_s = monotonic()
        else:
            self.said = error.str()

    def is_back(self) -> None:
        self.down_since_s = None
        self.said = ""

    def down_for_s(self) -> float:
        return 0.0 if self.down_since_s is None else monotonic() - self.down_since_s


class KafkaMetadata:
    """Topics, partitions and watermarks. Asks through a consumer: a producer's question would make a topic
    that is not there, where the broker allows that."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._reach = Reachability()
        self._consumer: Consumer = settings.build(
            Consumer, settings.for_consumer(), error_cb=self._reach.on_error
        )
        self._one_at_a_time = threading.Lock()

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has. Raises UnknownTopic, LogUnavailable."""
        deadline = monotonic() + self._settings.reach_s
        while True:
            found = self._topic(topic, max(0.1, deadline - monotonic()))
            if found.error is None and found.partitions:
                return len(found.partitions)
            error = found.error or KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            if error.code() != KafkaError.LEADER_NOT_AVAILABLE or monotonic() > deadline:
                raise log_error(f"topic {topic} at {self._settings.servers}", error)
            threading.Event().wait(0.05)  # it is being made

    def bounds(self, lane: Lane) -> tuple[int, int]:
        """Low and high watermark; of transactions, only what is decided."""
        self.check(lane)
        deadline = monotonic() + self._settings.reach_s
        while True:
            try:
                with self._one_at_a_time:
                    found = self._consumer.get_watermark_offsets(
                        TopicPartition(lane.topic, lane.partition),
                        timeout=max(0.1, deadline - monotonic()),
                        cached=False,
                    )
                break
            except KafkaException as error:
                # A topic just made, or one whose leader moves, answers in a moment.
                if error.args[0].code() not in _LEADERLESS or monotonic() > deadline:
                    raise self.failed(f"bounds of {lane}", error) from None
            threading.Event().wait(0.05)
        if found is None:
            raise LogUnavailable(f"bounds of {lane}: no answer from {self._settings.servers}")
        low, high = found
        return int(low), int(high)

    def check(self, lane: Lane) -> None:
        """Raises UnknownTopic where the lane does not exist."""
        count = self.partitions(lane.topic)
        if not 0 <= lane.partition < count:
            raise UnknownTopic(f"topic {lane.topic} has partitions 0 to {count - 1}, not {lane.partition}")

    def create(self, topic: str, partitions: int) -> None:
        """Makes the topic where it is not there, and waits until it can be used. What is made here is
        kept: record times say when events happened, and by those a broker's usual limit of seven days
        would delete replayed records before anybody read them. Retention is for operators to set."""
        made = NewTopic(topic, partitions, config={"retention.ms": "-1"})
        admin: AdminClient = self._settings.build(AdminClient, self._settings.for_admin())
        reach_s = self._settings.reach_s
        asked = admin.create_topics([made], request_timeout=reach_s)
        try:
            asked[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self.failed(f"topic {topic} cannot be made", error) from None
        deadline = monotonic() + reach_s
        while not self._has_leaders(topic):
            if monotonic() > deadline:
                raise LogUnavailable(f"topic {topic} was made, but has no leaders yet")
            threading.Event().wait(0.02)

    def failed(self, what: str, error: KafkaException) -> LogError:
        """The error to raise for what the client raised."""
        cause: Any = error.args[0]
        said = f" ({self._reach.said})" if self._reach.said else ""
        return log_error(self._settings.redact(f"{what} at {self._settings.servers}{said}"), cause)

    def close(self) -> None:
        self._consumer.close()

    def _topic(self, topic: str, timeout_s: float) -> Any:
        try:
            with self._one_at_a_time:
                self._consumer.poll(0)  # serves the error callback
                return self._consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        except KafkaException as error:
            raise self.failed(f"topic {topic}", error) from None

    def _has_leaders(self, topic: str) -> bool:
        found = self._topic(topic, self._settings.reach_s)
        return (
            found.error is None
            and bool(found.partitions)
            and all(p.error is None and p.leader >= 0 for p in found.partitions.values())
        )
