"""The roles of one machine as child processes: started together, ended together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from cli.tied import tied
from core.errors import RiverrunError

_STOP_S = 30.0
_REVIVALS, _WITHIN_S = 5, 60.0  # a child that is killed more often than this is given up
_CODE = Path(__file__).resolve().parents[1]
# A proxy of the user's is for the world outside.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(slots=True)
class _Child:
    arguments: Sequence[str]
    process: subprocess.Popen[bytes]
    said_before: int  # bytes of its log that earlier ones wrote
    revived_at_s: list[float] = field(default_factory=list)


class Processes:
    """Child processes of this program, in this environment. Each writes its messages to `NAME.log` in the
    folder. Leaving the context ends them all, the last started first; they also end where this program is
    killed."""

    def __init__(self, environ: Mapping[str, str], logs: Path) -> None:
        # Their code is ours, wherever they run; what lies in the working folder is not taken for it.
        path = os.pathsep.join(filter(None, (str(_CODE), environ.get("PYTHONPATH"))))
        self._environ = {**environ, "PYTHONPATH": path}
        self._logs = logs
        self._running: dict[str, _Child] = {}

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Runs `riverrun ARGUMENTS` under this name."""
        with self._log(name).open("ab") as output:
            process = subprocess.Popen(  # noqa: S603  # our own program
                tied([sys.executable, "-P", "-m", "cli.main", *arguments]),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=self._environ,
                start_new_session=True,  # Ctrl-C is for us; we tell them
            )
            self._running[name] = _Child(arguments, process, output.tell())

    def check(self) -> None:
        """Raises RiverrunError where one has ended by itself, with its last words."""
        for name, child in self._running.items():
            if child.process.poll() is not None:
                raise RiverrunError(self._ended(name))

    def revive(self) -> list[str]:
        """Starts those again that were killed (by a signal, as when memory runs out), and names them.
        Raises RiverrunError where one ended in another way, or is killed again and again."""
        revived = []
        for name, child in list(self._running.items()):
            status = child.process.poll()
            if status is None:
                continue
            now_s = time.monotonic()
            before = [at_s for at_s in child.revived_at_s if now_s - at_s < _WITHIN_S]
            if 0 <= status <= 128 or len(before) >= _REVIVALS:
                raise RiverrunError(self._ended(name))
            self._close(child)
            self.start(name, child.arguments)
            self._running[name].revived_at_s = [*before, now_s]
            revived.append(name)
        return revived

    def last_words(self, name: str) -> str:
        """The end of what the process wrote since it started."""
        with self._log(name).open("rb") as file:
            file.seek(self._running[name].said_before)
            text = file.read().decode("utf-8", "replace").strip()
        return "\n".join(text.splitlines()[-8:])

    def wait_ready(self, url: str, timeout_s: float, word: bytes = b"") -> None:
        """Until this address answers 200 with this word in it. Raises RiverrunError."""
        deadline_s = time.monotonic() + timeout_s
        said = "no answer yet"
        while time.monotonic() < deadline_s:
            self.check()
            try:
                with direct.open(url, timeout=2) as answer:
                    body = answer.read(500)
                    if word in body:
                        return
                    said = body.decode("utf-8", "replace")
            except urllib.error.HTTPError as error:
                said = error.read(500).decode("utf-8", "replace")
            except OSError as error:
                said = str(error)
            time.sleep(0.05)
        raise RiverrunError(f"{url} is not ready after {timeout_s:.0f} s: {said}")

    def stop(self, name: str) -> None:
        """Asks one to end in good order, and waits. Raises RiverrunError where it failed at that."""
        child = self._running[name]
        self._close(child)
        if child.process.returncode != 0:
            message = self._ended(name)
            del self._running[name]
            raise RiverrunError(message)
        del self._running[name]

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _ended(self, name: str) -> str:
        status = self._running[name].process.returncode
        number = -status if status < 0 else status - 128
        how = f"was killed by signal {number}" if number > 0 else f"ended with status {status}"
        words = self.last_words(name)
        return f"the {name} {how}" + (f"; its last words:\n{words}" if words else "")

    @staticmethod
    def _close(child: _Child) -> None:
        process = child.process
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(list(self._running)):
            self._close(self._running.pop(name))


def free_port() -> int:
    """A TCP port nobody listens on, on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
