"""Benchmarks are run by hand; what they build on is checked here, so that they still run when wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
NAMES = ("pipeline", "serving", "memory")


@pytest.mark.parametrize("name", NAMES)
def test_each_explains_itself(name: str) -> None:
    done = subprocess.run(
        [sys.executable, f"{FOLDER / name}.py", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "--json" in done.stdout
    assert "--quick" in done.stdout


def test_none_calls_what_is_gone() -> None:
    """A renamed method would show only in the middle of a long run otherwise."""
    options = ["--config-file", os.devnull, "--ignore-missing-imports", "--check-untyped-defs"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *(f"{FOLDER / name}.py" for name in NAMES)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=FOLDER,
        check=False,
        env={**os.environ, "MYPYPATH": str(FOLDER.parent)},
    )
    assert done.returncode in (0, 1), done.stderr
    gone = ("[attr-defined]", "[name-defined]", "[call-arg]", "[import-not-found]")
    assert [line for line in done.stdout.splitlines() if line.endswith(gone)] == []
