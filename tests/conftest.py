"""The real servers that tests run against: one private redis-server and one Kafka broker a run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import redis

from cli.embedded_redis import EmbeddedRedis, find_redis_server
from core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]
QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # up sooner, at half the processor time


def missing(reason: str) -> None:
    """Ends a test that lacks its server: skipped on a developer's machine, failed where CI is set."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    """A private redis-server for the whole run."""
    try:
        find_redis_server()
    except ConfigError as error:
        missing(str(error))
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """The url of a real, empty Redis."""
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    return redis_server.url


@pytest.fixture(scope="session")
def broker_module() -> ModuleType:
    """`deploy/kafka/broker.py`, which also `make kafka` runs."""
    spec = importlib.util.spec_from_file_location("kafka_broker", ROOT / "deploy" / "kafka" / "broker.py")
    if spec is None or spec.loader is None:
        raise ImportError("deploy/kafka/broker.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kafka_broker"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def kafka_libs(broker_module: ModuleType) -> Path:
    """Kafka's jars, fetched once and kept."""
    if shutil.which("java") is None:
        missing("Kafka needs Java 17: apt-get install default-jre-headless")
    try:
        libs: Path = broker_module.fetch_libs()
    except broker_module.BrokerError as error:
        missing(str(error))
        raise
    return libs


@pytest.fixture(scope="session")
def kafka_url(broker_module: ModuleType, kafka_libs: Path) -> Iterator[str]:
    """The url of a real broker for the whole run, on a free port. It ends with the run, however that ends."""
    with tempfile.TemporaryDirectory(prefix="riverrun-kafka-", ignore_cleanup_errors=True) as folder:
        broker = broker_module.Broker(Path(folder), kafka_libs, java=QUICK_JAVA)
        broker.start(tied=True)
        yield broker.url
        broker.stop()


@pytest.fixture
def topic() -> str:
    """A topic's name that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"
