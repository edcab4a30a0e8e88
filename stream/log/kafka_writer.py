"""Appends to Kafka and waits until the brokers have it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from core.errors import LogError, LogUnavailable
from core.records import OutRecord
from stream.log.kafka_connection import Reachability
from stream.log.kafka_errors import log_error
from stream.log.kafka_settings import KafkaSettings
from stream.log.topics import check_sizes

ROOM_S = 0.002  # how often an appender that met a full queue looks again


class _Reports:
    """Collects the delivery reports of one append, from whichever thread brings them."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._all_here = threading.Event()
        self.errors: list[KafkaError | None] = []

    def add(self, error: KafkaError | None, _: Message) -> None:
        self.errors.append(error)  # a list's append is atomic, a counter's is not
        if len(self.errors) >= self._expected:
            self._all_here.set()

    def expect(self, number: int) -> None:
        """Only so many were sent after all."""
        self._expected = number
        if len(self.errors) >= number:
            self._all_here.set()

    def wait(self) -> list[KafkaError]:
        """The errors among the reports, once all are there. Each record is reported when the broker has it
        or when it timed out, so this ends."""
        self._all_here.wait()
        return [error for error in self.errors if error is not None]


class KafkaWriter:
    """An idempotent producer, and a thread that takes its delivery reports."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._reach = Reachability()
        self._opening = threading.Lock()
        self._producer: Producer | None = None
        self._closed = threading.Event()

    def prepare(self) -> None:
        """Lets the client ask for its producer id now: a first append would wait half a second for it."""
        self._open()

    def append(self, topic: str, records: Sequence[OutRecord]) -> None:
        """All records delivered in order, or raises: LogError before anything is sent where one is too
        large, LogUnavailable where some were not confirmed in time (they may be in the log or not)."""
        check_sizes(topic, records, self._settings.max_record_bytes, '"message.max.bytes"')
        if not records:
            return
        for record in records:
            if record.timestamp_ms is not None and record.timestamp_ms < 0:
                raise LogError(f"topic {topic}: Kafka holds no times before 1970: {record.timestamp_ms} ms")
        producer = self._open()
        reports = _Reports(len(records))
        sent = 0
        try:
            for record in records:
                self._send(producer, topic, record, reports)
                sent += 1
        except KafkaException as error:
            reports.expect(sent)
            reports.wait()
            raise self._failed(producer, topic, len(records) - sent, error.args[0]) from None
        errors = reports.wait()
        if errors:
            worst = next((error for error in errors if error.fatal()), errors[0])
            raise self._failed(producer, topic, len(errors), worst)

    def close(self) -> None:
        with self._opening:
            self._closed.set()
            if self._producer is not None:
                self._producer.flush(5.0)
                self._producer = None

    def _send(self, producer: Producer, topic: str, record: OutRecord, reports: _Reports) -> None:
        # To librdkafka, a timestamp of 0 is the present.
        stamp = 0 if record.timestamp_ms is None else max(1, record.timestamp_ms)
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    -1 if record.partition is None else record.partition,
                    reports.add,
                    timestamp=stamp,
                    headers=list(record.headers) if record.headers else None,
                )
                return
            except BufferError:  # the queue is full: back-pressure, not a failure
                time.sleep(ROOM_S)

    def _open(self) -> Producer:
        with self._opening:
            if self._closed.is_set():
                raise LogError("this log was closed")
            if self._producer is None:
                self._producer = self._settings.build(
                    Producer, self._settings.for_producer(), error_cb=self._reach.on_error
                )
                threading.Thread(
                    target=self._take_reports, args=(self._producer,), name="kafka-reports", daemon=True
                ).start()
            return self._producer

    def _take_reports(self, producer: Producer) -> None:
        while self._producer is producer and not self._closed.is_set():
            producer.poll(0.1)
        producer.flush(5.0)  # reports that others may still wait for

    def _failed(self, producer: Producer, topic: str, number: int, error: KafkaError) -> LogError:
        if error.fatal():
            with self._opening:
                if self._producer is producer:
                    self._producer = None  # it takes nothing any more; the next append opens another
        said = f" ({self._reach.said})" if self._reach.said else ""
        raised = log_error(
            f"{number} records not appended to topic {topic} at {self._settings.servers}{said}", error
        )
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return LogError(f"{raised}: the topic's max.message.bytes is below the records' size")
        if isinstance(raised, LogUnavailable):
            self._reach.is_back()
        return raised
