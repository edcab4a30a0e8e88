"""Stores for the contract suites, and a Redis server that a test may stop, restart and starve."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from cli.embedded_redis import find_redis_server
from core.clock import ManualClock
from snapshots.open_store import Store, open_store


@dataclass
class Server:
    """A private redis-server on a Unix socket."""

    folder: Path
    options: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.folder}/redis.sock"

    def start(self) -> None:
        binary = find_redis_server()
        place = ["--port", "0", "--unixsocket", f"{self.folder}/redis.sock", "--dir", str(self.folder)]
        self.process = subprocess.Popen(
            [binary, *place, "--save", "", "--appendonly", "no", *self.options], stdout=subprocess.DEVNULL
        )
        client = redis.Redis.from_url(self.url)
        deadline_s = time.monotonic() + 20
        while True:
            try:
                client.ping()
                client.close()
                return
            except redis.ConnectionError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """Not started yet."""
    server = Server(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def raw(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client of the shared, emptied server."""
    client = redis.Redis.from_url(redis_url)
    yield client
    client.close()


@pytest.fixture
def redis_store(redis_url: str) -> Iterator[Store]:
    store = open_store(redis_url, ManualClock(1_000))
    yield store
    store.close()


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "redis":
        yield request.getfixturevalue("redis_store")
        return
    store = open_store("memory://", ManualClock(1_000))
    yield store
    store.close()


@pytest.fixture
def before_command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[Any]]:
    @contextmanager
    def before_command(name: str, act: Callable[[], None]) -> Iterator[Callable[[], bool]]:
        """Calls `act` once, just before the next command of this name (EXEC: the whole queued transaction)
        is sent. Yields whether it was called."""
        called = False
        send = redis.Connection.send_packed_command

        def hooked(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal called
            data = b"".join(map(bytes, command)) if isinstance(command, list) else bytes(command)
            if not called and name.encode() in data:
                called = True
                act()
            return send(self, command, *args, **kwargs)

        with monkeypatch.context() as patch:
            for kind in (redis.Connection, redis.UnixDomainSocketConnection):
                patch.setattr(kind, "send_packed_command", hooked)
            yield lambda: called

    return before_command


@pytest.fixture
def cut_after(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[Any]]:
    @contextmanager
    def cut_after(sends: int, error: Exception) -> Iterator[list[int]]:
        """Lets this many sends through, then raises instead of sending. A transaction is one send."""
        count = [0]
        send = redis.Connection.send_packed_command

        def hooked(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
            if count[0] >= sends:
                raise error
            count[0] += 1
            return send(self, command, *args, **kwargs)

        with monkeypatch.context() as patch:
            for kind in (redis.Connection, redis.UnixDomainSocketConnection):
                patch.setattr(kind, "send_packed_command", hooked)
            yield count

    return cut_after


@pytest.fixture
def lose_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[Any]]:
    @contextmanager
    def lose_answer(reads: int) -> Iterator[None]:
        """Sends go through, but after this many answers the connection breaks."""
        count = 0
        read = redis.Connection.read_response

        def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal count
            if count >= reads:
                self.disconnect()
                raise redis.ConnectionError("the connection broke")
            count += 1
            return read(self, *args, **kwargs)

        with monkeypatch.context() as patch:
            for kind in (redis.Connection, redis.UnixDomainSocketConnection):
                patch.setattr(kind, "read_response", hooked)
            yield

    return lose_answer
