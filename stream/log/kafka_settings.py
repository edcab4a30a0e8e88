"""Settings of librdkafka: what the log's promises need, what makes it prompt, and what the user gave."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException

from core.errors import ConfigError

LOGGER = "riverrun.kafka"  # librdkafka's own messages; whoever configures logging decides what is shown
REACH_S = 10.0  # how long a broker may be away before a call says so

OptionValue = str | int | float | bool

# The log's promises rest on these: committed records only, explicit offsets, no duplicates by retries.
_RESERVED = {
    "allow.auto.create.topics",
    "auto.offset.reset",
    "bootstrap.servers",
    "delivery.report.only.error",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "isolation.level",
    "metadata.broker.list",
    "transactional.id",
}

# librdkafka complains where one side is given the other side's settings.
_PRODUCER_ONLY = {
    "acks",
    "batch.num.messages",
    "batch.size",
    "compression.codec",
    "compression.level",
    "compression.type",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "linger.ms",
    "message.send.max.retries",
    "message.timeout.ms",
    "partitioner",
    "queue.buffering.backpressure.threshold",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "queuing.strategy",
    "request.required.acks",
    "request.timeout.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sticky.partitioning.linger.ms",
}
_CONSUMER_ONLY = {
    "check.crcs",
    "client.rack",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "heartbeat.interval.ms",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "session.timeout.ms",
}
_BOTH = {
    "client.id": "riverrun",
    "reconnect.backoff.max.ms": 1_000,  # a broker that is back is found within a second
    "socket.keepalive.enable": "true",
    "log.connection.close": "false",
}
_CONSUMER = {
    "group.id": "riverrun",  # required, but nothing is committed and no group is joined
    "fetch.queue.backoff.ms": 5,  # the default lets a reader that caught up wait a second
    "fetch.error.backoff.ms": 100,
    "fetch.wait.max.ms": 100,  # a seek waits until the request under way is answered
    "queued.max.messages.kbytes": 32_768,
}
_PRODUCER = {
    "linger.ms": 0.5,
    "queue.buffering.max.kbytes": 65_536,  # what is queued must get through before it times out
}
_ALIASES = {
    "delivery.timeout.ms": "message.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
}
_SECRET_WORDS = ("password", "secret", "key.pem", "token", "jaas")


class KafkaSettings:
    """The settings of one log's clients. Raises ConfigError for an option that the log itself decides."""

    def __init__(self, servers: str, options: Mapping[str, OptionValue], reach_s: float = REACH_S) -> None:
        problems = [
            f'log.options: "{name}" is decided by riverrun' for name in sorted(_RESERVED & options.keys())
        ]
        if problems:
            raise ConfigError(problems)
        self.servers = servers
        self.reach_s = reach_s
        self._given: dict[str, str | int | float] = {
            _ALIASES.get(name, name): str(value).lower() if isinstance(value, bool) else value
            for name, value in options.items()
        }
        self._secrets = [
            str(value)
            for name, value in options.items()
            if any(word in name for word in _SECRET_WORDS) and str(value)
        ]

    @property
    def max_record_bytes(self) -> int:
        """What the client takes; the broker or the topic may take less."""
        return int(self._given.get("message.max.bytes", 1_000_000))

    def for_admin(self) -> dict[str, Any]:
        return self._common(_PRODUCER_ONLY | _CONSUMER_ONLY)

    def for_consumer(self) -> dict[str, Any]:
        return {
            **_CONSUMER,
            **self._common(_PRODUCER_ONLY),
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": "error",
            "allow.auto.create.topics": "false",
        }

    def for_producer(self) -> dict[str, Any]:
        return {
            "message.timeout.ms": round(self.reach_s * 1000),
            **_PRODUCER,
            **self._common(_CONSUMER_ONLY),
            "enable.idempotence": "true",
        }

    def redact(self, text: str) -> str:
        """`text` without any secret among the options."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def build(self, client: Callable[..., Any], settings: dict[str, Any], **callbacks: Any) -> Any:
        """A client with these settings. Raises ConfigError for options that librdkafka does not take."""
        logger = logging.getLogger(LOGGER)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())  # unconfigured logging would print to standard error
        try:
            return client({**settings, **callbacks}, logger=logger)
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"log.options: {self.redact(str(error))}") from None

    def _common(self, without: set[str]) -> dict[str, Any]:
        given = {name: value for name, value in self._given.items() if name not in without}
        return {**_BOTH, **given, "bootstrap.servers": self.servers}
