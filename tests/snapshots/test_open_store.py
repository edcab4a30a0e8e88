"""Addresses of stores."""

from __future__ import annotations

import pytest

from core.errors import ConfigError
from snapshots.open_store import open_store, redacted


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:s3cr3t@host:1/0", "redis://:***@host:1/0"),
        ("rediss://user:s3cr3t@host/0?ssl_cert_reqs=none", "rediss://user:***@host/0?ssl_cert_reqs=none"),
        ("redis://user@host", "redis://user@host"),
        ("redis://u:a@s3cr3t/b:c@host", "redis://u:***@host"),
        ("redis://u:s3cr3t?x#y@host", "redis://u:***@host"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        ("unix://u:s3cr3t@/run/redis.sock", "unix://u:***@/run/redis.sock"),
        ("unix:///run/redis.sock?password=s3cr3t&db=1", "unix:///run/redis.sock?password=***&db=1"),
        ("redis://host?password=s3cr3t@x", "redis://host?password=***"),
        ("rediss://host?ssl_password=s3cr3t", "rediss://host?ssl_password=***"),
        ("u:s3cr3t@host", "u:***@host"),
        ("memory://", "memory://"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://u:s3cr3t@host",
        "redis:/u:s3cr3t@host",
        "redis://u:a/s3cr3t@host:1",
        "redis://u:s3cr3t@host:port",
        "redis://host?socket_timeout=s3cr3t",
        "redis://host?password=s3cr3t&nonsense=1",
        "redis://[u:s3cr3t@host",
    ],
)
def test_other_addresses_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.url") as caught:
        open_store(url)
    text = repr(caught.value) + repr(caught.value.__cause__)
    assert "s3cr3t" not in text or "socket_timeout" in url


def test_each_memory_store_is_its_own() -> None:
    one, other = open_store("memory://"), open_store("memory://")
    one.ping()
    one.commands.push("m", {"id": "1", "do": "pause"})
    assert len(one.commands.pending("m")) == 1
    assert list(other.commands.pending("m")) == []
    one.close()
    other.close()
