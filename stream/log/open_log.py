"""Opens the log that a url names."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from core.clock import Clock
from core.errors import ConfigError
from stream.log.log import Log

OptionValue = str | int | float | bool

_FORMS = "kafka://host:port[,host:port], redis://, rediss://, unix:///path or memory://"


def open_log(url: str, options: Mapping[str, OptionValue] | None = None, clock: Clock | None = None) -> Log:
    """The log at `url`, opened without waiting for it. `clock` stamps records that have no time (Kafka
    stamps by itself).

    `options` of kafka go to librdkafka, of redis to redis-py and of memory nowhere, but for
    `retention_records` and `max_record_bytes` of redis and memory. Raises ConfigError for a url or option
    that cannot be used; the message never holds credentials.
    """
    given = dict(options or {})
    try:
        parts = urlsplit(url)
        if parts.scheme == "kafka":
            # imported here: each client library is loaded only where it is used
            from stream.log.kafka_log import KafkaLog

            return KafkaLog(_servers(parts), given)
        if parts.scheme in {"redis", "rediss", "unix"}:
            from stream.log.redis_log import RedisLog

            _ = parts.port  # raises ValueError where it is none
            retention, largest = _sizes(given)
            return RedisLog(url, clock, retention, largest, given)
    except ValueError as error:
        raise ConfigError(f"log.url: {error}: one of {_FORMS}") from None
    if parts.scheme == "memory":
        from stream.log.memory_log import MemoryLog

        retention, largest = _sizes(given)
        if given:
            raise ConfigError([f'log.options: memory:// has no option "{name}"' for name in sorted(given)])
        return MemoryLog(clock, retention, largest)
    raise ConfigError(f"log.url: one of {_FORMS}, not {parts.scheme or 'nothing'}://…")


def _sizes(options: dict[str, OptionValue]) -> tuple[int | None, int]:
    """Takes `retention_records` and `max_record_bytes` out of the options."""
    from stream.log.topics import MAX_RECORD_BYTES

    found: list[int | None] = []
    for name in ("retention_records", "max_record_bytes"):
        value = options.pop(name, None)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ConfigError(f"log.options: {name} is a whole number above 0, not {value!r}")
        found.append(value)
    retention, largest = found
    return retention, MAX_RECORD_BYTES if largest is None else largest


def _servers(parts: SplitResult) -> str:
    """host:port,host:port of a kafka:// url."""
    if "@" in parts.netloc:
        raise ConfigError('log.url: credentials of Kafka go into log.options ("sasl.username", …)')
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ConfigError("log.url: kafka://host:port[,host:port], and nothing behind it")
    servers = []
    for server in parts.netloc.split(","):
        host, port = urlsplit(f"//{server}").hostname, urlsplit(f"//{server}").port
        if not host:
            raise ConfigError(f"log.url: a broker without a host in kafka://{parts.netloc}")
        shown = f"[{host}]" if ":" in host else host
        servers.append(f"{shown}:{9092 if port is None else port}")
    return ",".join(servers)
