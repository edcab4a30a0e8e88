"""Real processes: every test here runs `python -m cli.main` as a user's shell would."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_MS = 1_700_000_000_000
MODEL = """
[models.m]
task = "binary"
events = "m.events"
labels = "m.labels"
label = "late"
[models.m.features]
x = "float"
color = "category"
[models.m.file]
id = "name"
ts = "at"
label_ts = "known"
[models.m.window]
count = 1
[models.m.snapshot]
every = "500ms"
"""


class Process:
    """One running command; its standard error goes to a file."""

    def __init__(self, popen: subprocess.Popen[str], errors: Path) -> None:
        self.popen = popen
        self._errors = errors

    @property
    def pid(self) -> int:
        return self.popen.pid

    def errors(self) -> str:
        return self._errors.read_text()

    def end(self, number: int = signal.SIGTERM, timeout_s: float = 40) -> int:
        """Sends a signal and gives the exit status."""
        self.popen.send_signal(number)
        return self.popen.wait(timeout_s)

    def says(self, text: str, timeout_s: float = 30) -> None:
        """Waits until standard error holds this text."""
        until(lambda: text in self.errors(), f"{text!r} in standard error", timeout_s, self)


class Cli:
    """`riverrun` in a folder and an environment of its own."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RIVERRUN")}
        self.environ = {
            **kept,
            "PYTHONPATH": str(ROOT),
            "RIVERRUN__TRAINER__METRICS_PORT": "0",
            "RIVERRUN__TRAINER__LEASE": "1s",
            **environ,
        }
        self._started: list[subprocess.Popen[str]] = []

    def run(self, *arguments: str, timeout_s: float = 60, **environ: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, piped."""
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *arguments],
            cwd=self.folder,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )

    def json(self, *arguments: str, timeout_s: float = 60) -> Any:
        """Runs a command with `--json` and reads what it prints: exactly one value."""
        done = self.run(*arguments, "--json", timeout_s=timeout_s)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, *arguments: str, **environ: str) -> Process:
        errors = self.folder / f"errors-{len(self._started)}.txt"
        with errors.open("w") as file:
            popen = subprocess.Popen(
                [sys.executable, "-m", "cli.main", *arguments],
                cwd=self.folder,
                env={**self.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        self._started.append(popen)
        return Process(popen, errors)

    def close(self) -> None:
        for popen in self._started:
            if popen.poll() is None:
                popen.terminate()
                try:
                    popen.wait(20)
                except subprocess.TimeoutExpired:
                    popen.kill()
                    popen.wait()
            if popen.stdout is not None:
                popen.stdout.close()


def until(true: Callable[[], Any], what: str, timeout_s: float = 30, process: Process | None = None) -> Any:
    """What the question answers, once that is something; fails after a while, or where the process ends."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        if found := true():
            return found
        ended = process is not None and process.popen.poll() is not None
        if ended or time.monotonic() > deadline_s:
            said = "" if process is None else f"\n{process.errors()}"
            pytest.fail(f"not seen: {what}{said}", pytrace=False)
        time.sleep(0.05)


def write_rows(path: Path, n: int, prefix: str = "e") -> None:
    """A file of n events one second apart, whose labels come five seconds later; ids are the prefix and
    the row's number."""
    rng = random.Random(prefix)
    with path.open("w") as file:
        file.write("name,at,x,color,late,known\n")
        for i in range(n):
            x, color = rng.gauss(0, 1), rng.choice(["red", "green"])
            late = x + (color == "red") + rng.gauss(0, 0.5) > 0.5
            at = START_MS + i * 1_000
            file.write(f"{prefix}{i},{at},{x:.4f},{color},{str(late).lower()},{at + 5_000}\n")


@pytest.fixture
def make_cli(tmp_path: Path) -> Iterator[Callable[..., Cli]]:
    """Makes commands' surroundings; what they leave running ends with the test."""
    made: list[Cli] = []

    def make(folder: Path = tmp_path, **environ: str) -> Cli:
        made.append(Cli(folder, **environ))
        return made[-1]

    yield make
    for cli in made:
        cli.close()


@pytest.fixture(scope="session")
def e2e() -> Any:
    """The helpers of this file, for tests that cannot import it by name."""
    return sys.modules[__name__]
