"""What only a real Kafka broker can show: transactions, gaps, restarts, back-pressure, options."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from core.errors import ConfigError, LogError, LogUnavailable, OffsetOutOfRange, UnknownTopic
from core.records import Lane, OutRecord
from stream.log.kafka_log import KafkaLog
from stream.log.kafka_settings import KafkaSettings

pytestmark = pytest.mark.kafka


@pytest.fixture
def servers(kafka_url: str) -> str:
    return kafka_url.removeprefix("kafka://")


@pytest.fixture
def log(servers: str) -> Iterator[KafkaLog]:
    log = KafkaLog(servers)
    yield log
    log.close()


def read_all(log: KafkaLog, lane: Lane, start: int, count: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline, found
        records = log.read({lane: start}, 1_000, 1.0).get(lane)
        if records is not None:
            found += zip(records.offsets.tolist(), records.values, strict=True)
            start = records.next_offset
    return found


def test_only_committed_records_are_seen_and_the_gaps_are_passed(
    log: KafkaLog, servers: str, topic: str
) -> None:
    log.create(topic)
    lane = Lane(topic, 0)
    log.append(topic, [OutRecord(b"before")])
    sender = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    sender.init_transactions(30)
    sender.begin_transaction()
    for i in range(1_000):
        sender.produce(topic, b"aborted %d" % i)
    sender.flush(30)
    assert log.read({lane: 1}, 10, 0.3) == {}  # undecided
    sender.abort_transaction(30)
    assert log.read({lane: 1}, 10, 0.3) == {}  # aborted: nothing but control records to the end
    assert log.bounds(lane) == (0, 1_002)
    assert log.read({lane: 1_002}, 10, 0.1) == {}
    sender.begin_transaction()
    sender.produce(topic, b"committed")
    sender.commit_transaction(30)
    assert read_all(log, lane, 0, 2) == [(0, b"before"), (1_002, b"committed")]
    assert read_all(log, lane, 500, 1) == [(1_002, b"committed")]  # from inside the gap
    end = log.bounds(lane)[1]
    assert end == 1_004
    assert log.read({lane: 1_003}, 10, 0.2) == {}  # what next_offset says now: only a control record there
    log.append(topic, [OutRecord(b"after")])
    assert read_all(log, lane, 1_003, 1) == [(1_004, b"after")]
    with pytest.raises(OffsetOutOfRange):
        log.read({lane: 1_006}, 10, 10.0)


def test_below_the_oldest_record_is_out_of_range(log: KafkaLog, servers: str, topic: str) -> None:
    log.create(topic)
    lane = Lane(topic, 0)
    log.append(topic, [OutRecord(b"%d" % i) for i in range(10)])
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        done.result(30)
    assert log.bounds(lane) == (6, 10)
    with pytest.raises(OffsetOutOfRange, match=r"offset 2 .* no longer kept.* 6 up to 10"):
        log.read({lane: 2}, 10, 10.0)
    assert read_all(log, lane, 6, 4)[0] == (6, b"6")


def test_a_full_queue_is_back_pressure(servers: str, topic: str) -> None:
    log = KafkaLog(servers, {"queue.buffering.max.messages": 10, "linger.ms": 0})
    try:
        log.create(topic)
        log.append(topic, [OutRecord(b"%d" % i) for i in range(2_000)])
        assert log.bounds(Lane(topic, 0)) == (0, 2_000)
        assert [v for _, v in read_all(log, Lane(topic, 0), 0, 2_000)] == [b"%d" % i for i in range(2_000)]
    finally:
        log.close()


def test_a_topic_that_takes_less_names_its_limit(log: KafkaLog, servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(topic, 1, config={"max.message.bytes": "2000"})])
    made[topic].result(30)
    with pytest.raises(LogError, match=rf"{topic}.*max\.message\.bytes"):
        log.append(topic, [OutRecord(b"x" * 5_000)])
    log.append(topic, [OutRecord(b"x" * 500)])
    assert read_all(log, Lane(topic, 0), 0, 1) == [(0, b"x" * 500)]


def test_a_deleted_topic_is_unknown(log: KafkaLog, servers: str, topic: str) -> None:
    log.create(topic)
    log.append(topic, [OutRecord(b"x")])
    assert read_all(log, Lane(topic, 0), 0, 1)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(30)
    assert isinstance(error_of_reading(log, {Lane(topic, 0): 1}), UnknownTopic)
    log.create(topic)
    assert isinstance(error_of_reading(log, {Lane(topic, 0): 1}), OffsetOutOfRange)
    log.append(topic, [OutRecord(b"new")])
    assert read_all(log, Lane(topic, 0), 0, 1) == [(0, b"new")]


def test_a_killed_broker_is_reported_and_its_return_noticed(
    broker_module: ModuleType, kafka_libs: Path, tmp_path: Path
) -> None:
    broker = broker_module.Broker(
        tmp_path / "kafka", kafka_libs, java=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    )
    broker.start(tied=True)
    servers = broker.url.removeprefix("kafka://")
    log, patient = KafkaLog(servers, reach_s=1.5), KafkaLog(servers, reach_s=60.0)
    lane = Lane("t", 0)
    try:
        log.create("t")
        patient.append("t", [OutRecord(b"0")])
        append_until_done(log, [OutRecord(b"1")])  # a new broker gives out no producer ids at first
        assert read_all(log, lane, 0, 2) == [(0, b"0"), (1, b"1")]
        broker.stop(signal.SIGKILL)

        appended: list[str] = []
        waiting = threading.Thread(
            target=lambda: appended.append(
                str(patient.append("t", [OutRecord(b"p%d" % i) for i in range(9)]))
            )
        )
        waiting.start()
        began = time.monotonic()
        with pytest.raises(LogUnavailable, match="topic t") as raised:
            log.append("t", [OutRecord(b"lost")])
        assert raised.value.retriable
        assert isinstance(error_of_reading(log, {lane: 2}), LogUnavailable)
        with pytest.raises(LogUnavailable):
            log.lanes("t")
        assert time.monotonic() - began < 30

        broker.start(tied=True)
        waiting.join()
        assert appended == ["None"]  # it waited, and then it was done
        append_until_done(log, [OutRecord(b"back")])
        log.append("t", [OutRecord(b"%d" % i) for i in range(500)])
        values = [v for _, v in read_all(log, lane, 2, log.bounds(lane)[1] - 2)]
        assert [v for v in values if v and v.startswith(b"p")] == [b"p%d" % i for i in range(9)]
        assert values[-501:] == [b"back", *(b"%d" % i for i in range(500))]
    finally:
        log.close()
        patient.close()
        broker.stop()


def error_of_reading(log: KafkaLog, start: dict[Lane, int]) -> LogError | None:
    """What reading on raises in the end; it may find nothing for a while before."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            assert log.read(start, 10, 0.2) == {}
        except LogError as error:
            return error
    return None


def append_until_done(log: KafkaLog, records: list[OutRecord]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            return log.append("t", records)
        except LogUnavailable:
            assert time.monotonic() < deadline


def test_nobody_listening() -> None:
    log = KafkaLog("127.0.0.1:9", reach_s=0.3)
    try:
        for act in (
            lambda: log.bounds(Lane("t", 0)),
            lambda: log.create("t"),
            lambda: log.append("t", [OutRecord(b"x")]),
        ):
            with pytest.raises(LogUnavailable, match=r"127\.0\.0\.1:9"):
                act()
        with pytest.raises(LogUnavailable):
            log.read({Lane("t", 0): 0}, 10, 0.1)
    finally:
        log.close()


def test_options_reach_the_client_that_takes_them() -> None:
    settings = KafkaSettings(
        "h:1", {"linger.ms": 7, "fetch.min.bytes": 3, "socket.nagle.disable": False, "delivery.timeout.ms": 5}
    )
    producer, consumer, admin = settings.for_producer(), settings.for_consumer(), settings.for_admin()
    assert (producer["linger.ms"], producer["message.timeout.ms"]) == (7, 5)
    assert "fetch.min.bytes" not in producer
    assert "delivery.timeout.ms" not in producer
    assert consumer["fetch.min.bytes"] == 3
    assert "linger.ms" not in consumer
    assert not {"linger.ms", "fetch.min.bytes"} & admin.keys()
    assert {s["socket.nagle.disable"] for s in (producer, consumer, admin)} == {"false"}
    assert consumer["isolation.level"] == "read_committed"


def test_options_that_cannot_be_used_are_named() -> None:
    with pytest.raises(ConfigError, match=r"enable\.idempotence") as raised:
        KafkaLog("localhost:9", {"enable.idempotence": False, "isolation.level": "read_uncommitted"})
    assert len(raised.value.problems) == 2
    with pytest.raises(ConfigError, match=r"no\.such\.option"):
        KafkaLog("localhost:9", {"no.such.option": 1})


def test_secrets_are_not_told() -> None:
    options = {
        "sasl.password": "open-sesame",
        "sasl.mechanism": "open-sesame",
        "security.protocol": "SASL_SSL",
    }
    with pytest.raises(ConfigError) as raised:
        KafkaLog("localhost:9", options)
    assert "open-sesame" not in str(raised.value)
