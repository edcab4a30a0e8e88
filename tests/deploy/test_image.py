"""The Dockerfile and what may enter it, checked against pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their arguments; comments dropped, continued lines joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def test_every_package_is_copied_and_nothing_else() -> None:
    copied = {what for name, what in instructions() if name == "COPY" and not what.startswith("--from")}
    assert copied == {f"{package}/ {package}/" for package in PACKAGES} | {
        "requirements/base.txt requirements/",
        "pyproject.toml README.md LICENSE ./",
    }


def test_nothing_enters_the_build_but_what_is_copied() -> None:
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == {f"{package}/" for package in PACKAGES} | {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "requirements/base.txt",
    }


def test_the_base_is_one_image_held_by_digest_and_new_enough() -> None:
    bases = [what.split()[0] for name, what in instructions() if name == "FROM"]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    match = re.fullmatch(r"python:3\.(\d+)\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", bases[0])
    assert match is not None
    assert int(match[1]) >= 11


def test_the_image_runs_riverrun_as_a_user_that_is_not_root() -> None:
    last = dict(instructions())
    assert last["USER"] == "10001:10001"
    assert last["ENTRYPOINT"] == '["riverrun"]'
    assert "riverrun" in PROJECT["project"]["scripts"]


def test_packages_are_installed_by_hash_and_the_installer_does_not_ship() -> None:
    runs = [what for name, what in instructions() if name == "RUN"]
    installs = [run for run in runs if "pip install" in run]
    assert len(installs) == 2
    assert "--require-hashes -r requirements/base.txt" in installs[0]
    assert "--no-deps --no-build-isolation ." in installs[1]
    removed = installs[1].rpartition("pip uninstall -y")[2].split()
    assert {"pip", "hatchling", "editables"} <= set(removed)
    pinned = re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/base.txt").read_text(), re.MULTILINE)
    assert set(removed) - {"pip"} <= set(pinned)
