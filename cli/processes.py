"""The roles of one machine as child processes: started together, ended together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from core.errors import RiverrunError

_STOP_S = 30.0


class Processes:
    """Child processes of this program. Each writes its messages to `NAME.log` in the folder, or to our
    standard error where none is given. Leaving the context ends them all, the last started first."""

    def __init__(self, environ: Mapping[str, str], logs: Path | None = None) -> None:
        self._environ = {**os.environ, **environ}
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._files: list[IO[bytes]] = []

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Runs `riverrun ARGUMENTS` under this name."""
        output: IO[bytes] | None = None
        if self._logs is not None:
            output = (self._logs / f"{name}.log").open("ab")
            self._files.append(output)
        self._running[name] = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, "-m", "cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=self._environ,
            start_new_session=True,  # Ctrl-C is for us; we tell them
        )

    def pid(self, name: str) -> int:
        """The process's number."""
        return self._running[name].pid

    def check(self) -> None:
        """Raises RiverrunError where one has ended by itself, with its last words."""
        for name, process in self._running.items():
            status = process.poll()
            if status is not None:
                raise RiverrunError(f"{name} ended with status {status}{self.last_words(name)}")

    def last_words(self, name: str) -> str:
        """The end of what the process wrote."""
        if self._logs is None:
            return ""
        text = (self._logs / f"{name}.log").read_text("utf-8", "replace").strip()
        return ":\n" + "\n".join(text.splitlines()[-8:]) if text else ""

    def wait_ready(self, url: str, timeout_s: float) -> None:
        """Until this address answers 200. Raises RiverrunError."""
        deadline_s = time.monotonic() + timeout_s
        said = "no answer yet"
        while time.monotonic() < deadline_s:
            self.check()
            try:
                with urllib.request.urlopen(url, timeout=2):  # noqa: S310  # our own server's address
                    return
            except urllib.error.HTTPError as error:
                said = error.read(500).decode("utf-8", "replace")
            except OSError as error:
                said = str(error)
            time.sleep(0.05)
        raise RiverrunError(f"{url} is not ready after {timeout_s:.0f} s: {said}")

    def stop(self, name: str) -> int:
        """Asks one to end in good order, and waits; its exit status."""
        process = self._running.pop(name)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            return process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(list(self._running)):
            self.stop(name)
        for file in self._files:
            file.close()
