"""A url names a log; what cannot be opened is said clearly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core.clock import ManualClock
from core.errors import ConfigError, LogUnavailable
from core.records import Lane, OutRecord
from stream.log.kafka_log import KafkaLog
from stream.log.memory_log import MemoryLog
from stream.log.open_log import open_log
from stream.log.redis_log import RedisLog


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("kafka://localhost:9092", "localhost:9092"),
        ("kafka://a,b:9093,[::1]:9094", "a:9092,b:9093,[::1]:9094"),
        ("kafka://Broker-1.example/", "broker-1.example:9092"),
    ],
)
def test_kafka_urls(url: str, servers: str) -> None:
    log = open_log(url)
    assert isinstance(log, KafkaLog)
    assert log._settings.servers == servers
    log.close()


@pytest.mark.parametrize(
    "url", ["redis://localhost:6379/0", "rediss://u:p@example:6380/1", "unix:///tmp/x.sock"]
)
def test_redis_urls(url: str) -> None:
    log = open_log(url)
    assert isinstance(log, RedisLog)
    log.close()


def test_memory_urls_stamp_with_the_clock_and_take_their_options() -> None:
    log = open_log("memory://", {"retention_records": 2, "max_record_bytes": 10}, ManualClock(42))
    assert isinstance(log, MemoryLog)
    log.create("t")
    log.append("t", [OutRecord(b"a"), OutRecord(b"b"), OutRecord(b"c")])
    assert log.bounds(Lane("t", 0)) == (1, 3)
    assert log.read({Lane("t", 0): 1}, 5, 0.0)[Lane("t", 0)].timestamps_ms.tolist() == [42, 42]


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("", {}, "log.url"),
        ("localhost:9092", {}, "kafka://host:port"),
        ("amqp://x", {}, "amqp"),
        ("kafka://", {}, "without a host"),
        ("kafka://a:b", {}, "log.url"),
        ("kafka://a:99999", {}, "log.url"),
        ("kafka://a,,b", {}, "without a host"),
        ("kafka://me:open-sesame@a", {}, "log.options"),
        ("kafka://a/topic", {}, "nothing behind it"),
        ("kafka://a", {"isolation.level": "read_uncommitted"}, "isolation.level"),
        ("redis://a:b/0", {}, "log.url"),
        ("redis://:open-sesame@a/0", {"nonsense": 1}, "nonsense"),
        ("redis://a", {"retention_records": 0}, "retention_records"),
        ("redis://a", {"max_record_bytes": "large"}, "max_record_bytes"),
        ("memory://", {"linger.ms": 1}, "linger.ms"),
    ],
)
def test_what_cannot_be_opened(url: str, options: dict[str, str | int | float | bool], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        open_log(url, options)
    assert says in str(raised.value)
    assert "open-sesame" not in str(raised.value)


def test_a_missing_server_is_not_told_with_its_password() -> None:
    log = open_log("redis://me:open-sesame@127.0.0.1:9/0")
    with pytest.raises(LogUnavailable) as raised:
        log.lanes("t")
    assert "127.0.0.1:9" in str(raised.value)
    assert "open-sesame" not in str(raised.value)


def test_client_libraries_are_loaded_only_where_used() -> None:
    code = (
        "import sys; from stream.log.open_log import open_log; open_log('memory://');"
        "sys.exit(bool({'redis', 'confluent_kafka'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
