"""The logs that pass the contract suite: Kafka, Redis Streams and memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.clock import ManualClock
from stream.log.kafka_log import KafkaLog
from stream.log.log import Log
from stream.log.memory_log import MemoryLog
from stream.log.redis_log import RedisLog
from tests.stream.log_harness import NOW_MS, Opener


@pytest.fixture(scope="session")
def kafka_log(kafka_url: str) -> Iterator[KafkaLog]:
    """One client for all tests: a new producer takes half a second before its first append."""
    log = KafkaLog(kafka_url.removeprefix("kafka://"))
    yield log
    log.close()


@pytest.fixture(
    params=[
        "memory",
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("kafka", marks=pytest.mark.kafka),
    ]
)
def open_again(request: pytest.FixtureRequest) -> Iterator[Opener]:
    """Opens the log under test; each call is another client of the same log."""
    opened: list[Log] = []
    if request.param == "memory":
        only = MemoryLog(ManualClock(NOW_MS))

        def open_it() -> Log:
            return only

    elif request.param == "redis":
        url = request.getfixturevalue("redis_url")

        def open_it() -> Log:
            opened.append(RedisLog(url, ManualClock(NOW_MS)))
            return opened[-1]

    else:
        shared = request.getfixturevalue("kafka_log")
        servers = request.getfixturevalue("kafka_url").removeprefix("kafka://")
        calls = iter([shared])

        def open_it() -> Log:
            first: Log | None = next(calls, None)
            if first is not None:
                return first
            opened.append(KafkaLog(servers))
            return opened[-1]

    yield open_it
    for log in opened:
        log.close()


@pytest.fixture
def log(open_again: Opener) -> Log:
    return open_again()
