"""A trainer over a real broker: bad records of every kind, and a broker that is killed and comes back."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from core.records import OutRecord
from snapshots.open_store import open_store
from stream.log.kafka_log import KafkaLog
from stream.log.log import Log
from stream.log.open_log import open_log

pytestmark = [pytest.mark.kafka, pytest.mark.redis]
Make = Callable[..., Any]
GOOD = b'{"id":"%s","ts":1700000000000,"features":{"x":1.5,"color":"red"}}'
LARGE = 5_000_000

# Events that must be refused, with the reason.
BAD: list[tuple[bytes, str]] = [
    (b"\xff", "not_utf8"),
    (b"not JSON", "malformed"),
    (b'{"id":"b1","features":{"x":1.5}}', "missing_field"),
    (b'{"id":"b2","features":{"x":"1.5","color":"red"}}', "wrong_type"),
    (b'{"id":"b3","features":{"x":NaN,"color":"red"}}', "malformed"),
    (b'{"id":"b4","features":{"x":1e999,"color":"red"}}', "number_out_of_range"),
    (b'{"id":"b5","features":{"x":1e308,"color":"red"}}', "number_out_of_range"),
    (b'{"id":"a\\nb","features":{"x":1.5,"color":"red"}}', "bad_id"),
    (b'{"id":"b6","features":{"x":1.5,"color":"' + b"r" * 300 + b'"}}', "category_too_long"),
    (b'{"id":"b7","ts":"2013-01-01T05:00:00","features":{"x":1.5,"color":"red"}}', "bad_timestamp"),
    (b'{"id":"b8","features":{"x":1.5,"color":' + b"[" * 2_000 + b"]" * 2_000 + b"}}", "too_deep"),
    (b'{"id":"b9","pad":"' + b"p" * LARGE + b'"}', "too_large"),
]


@pytest.fixture(scope="module")
def broker(broker_module: ModuleType, kafka_libs: Path) -> Iterator[Any]:
    """A broker of our own, to kill."""
    with tempfile.TemporaryDirectory(prefix="riverrun-kafka-", ignore_cleanup_errors=True) as folder:
        quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        made = broker_module.Broker(Path(folder), kafka_libs, java=quick)
        made.start(tied=True)
        yield made
        made.stop()


def take_large(url: str, topic: str) -> None:
    """Lets the topic hold records of 6 MB."""
    admin = AdminClient({"bootstrap.servers": url.removeprefix("kafka://")})
    entry = ConfigEntry("max.message.bytes", "6000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for asked in admin.incremental_alter_configs([resource]).values():
        asked.result()


def manifest(url: str) -> dict[str, Any]:
    store = open_store(url)
    try:
        versions = store.snapshots.versions("m")
        return dict(store.snapshots.load("m", versions[-1], parts=()).manifest) if versions else {}
    finally:
        store.close()


def counts(url: str) -> dict[str, int]:
    return dict(manifest(url).get("counts", {"learned": 0, "events": 0, "labels": 0}))


def everything(log: Log, topic: str) -> list[tuple[bytes | None, dict[str, bytes]]]:
    (lane,) = log.lanes(topic)
    at, end = log.bounds(lane)
    found: list[tuple[bytes | None, dict[str, bytes]]] = []
    deadline_s = time.monotonic() + 20
    while at < end and time.monotonic() < deadline_s:
        for records in log.read({lane: at}, 100, 1.0).values():
            headers = records.headers or [()] * len(records)
            found += [(v, dict(h)) for v, h in zip(records.values, headers, strict=True)]
            at = records.next_offset
    return found


def test_an_unknown_topic_ends_it_in_words(make_cli: Make, e2e: Any, kafka_url: str, redis_url: str) -> None:
    cli = make_cli(RIVERRUN__LOG__URL=kafka_url, RIVERRUN__STORE__URL=redis_url)
    (cli.folder / "riverrun.toml").write_text(e2e.MODEL.replace("m.events", "never.made"))
    done = cli.run("train")
    assert done.returncode == 1
    assert "topic never.made" in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_records_and_a_broker_that_is_killed(
    make_cli: Make, e2e: Any, broker: Any, redis_url: str
) -> None:
    log: KafkaLog = open_log(broker.url, {"message.max.bytes": 6_000_000})  # type: ignore[assignment]
    for topic in ("m.events", "m.labels", "riverrun.deadletter"):
        log.create(topic)
    take_large(broker.url, "m.events")
    cli = make_cli(RIVERRUN__LOG__URL=broker.url, RIVERRUN__STORE__URL=redis_url)
    (cli.folder / "riverrun.toml").write_text(
        e2e.MODEL.replace('labels = "m.labels"', 'labels = "m.labels"\nclasses = [false, true]')
    )
    trainer = cli.start("train")

    # Every kind of bad record among good ones; labels without event, events without label, a label twice.
    for i, (value, _) in enumerate(BAD):
        log.append("m.events", [OutRecord(GOOD % b"g%d" % i, b"g%d" % i), OutRecord(value, b"bad")])
    label = b'{"id":"%s","ts":1700000001000,"label":%s}'
    labels = [OutRecord(label % (b"g%d" % i, b"true")) for i in range(8)]
    labels += [OutRecord(label % (b"g0", b"false"))]  # a conflict: learned once
    labels += [OutRecord(label % (b"orphan%d" % i, b"true")) for i in range(50)]
    labels += [OutRecord(label % (b"g8", b'"perhaps"')), OutRecord(b"\xfe")]
    log.append("m.labels", labels)
    e2e.until(lambda: counts(redis_url)["labels"] >= 58, "the labels", process=trainer)
    e2e.until(
        lambda: sum(manifest(redis_url)["dead_letters"].values()) == len(BAD) + 2, "dead letters",
        process=trainer,
    )  # fmt: skip
    told = manifest(redis_url)
    assert told["counts"]["events"] == len(BAD)
    assert told["counts"]["learned"] == 8
    letters = everything(log, "riverrun.deadletter")
    reasons = Counter(headers["riverrun-reason"].decode() for _, headers in letters)
    assert reasons == Counter(told["dead_letters"])
    of_events = [(v, h) for v, h in letters if h["riverrun-topic"] == b"m.events"]
    assert [h["riverrun-reason"].decode() for _, h in of_events] == [reason for _, reason in BAD]
    assert [int(h["riverrun-offset"]) for _, h in of_events] == list(range(1, 2 * len(BAD), 2))
    for (value, headers), (sent, reason) in zip(of_events, BAD, strict=True):
        if reason == "too_large":
            assert int(headers["riverrun-truncated-from"]) == len(sent)
            assert sent.startswith(value or b"?")
        else:
            assert value == sent

    # The broker dies in the middle and comes back: the trainer waits, and goes on.
    broker.stop(signal.SIGKILL)
    time.sleep(1.0)
    assert trainer.popen.poll() is None
    broker.start(tied=True)
    e2e.write_rows(cli.folder / "rows.csv", 300)
    done = cli.run("produce", "rows.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"model": "m", "events": 300, "labels": 300}
    e2e.until(lambda: counts(redis_url)["learned"] == 308, "learning goes on", 60, trainer)
    assert trainer.end(signal.SIGTERM) == 0
    assert "Traceback" not in trainer.errors()
    log.close()
