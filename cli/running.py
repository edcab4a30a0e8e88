"""What runs beside a configuration: `riverrun up` leaves word of its log and store for other commands.

The rule: `up` keeps everything embedded in one folder, `riverrun-data` beside the configuration file unless
`--data` (or RIVERRUN_DATA) names another. There, while it runs, `running.toml` says where its log, store and
predictor are; a command whose url is `embedded://` looks into the same folder.
"""

from __future__ import annotations

import fcntl
import os
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec

from cli.load_config import DEFAULT_PATH
from core.config import Config
from core.errors import RiverrunError

EMBEDDED = "embedded://"
FOLDER = "riverrun-data"
_NAME = "running.toml"
_TRIES = 10


class NothingRuns(RiverrunError):
    """No `riverrun up` runs where an embedded log or store was looked for."""


class RunsAlready(RiverrunError):
    """Another `riverrun up` runs on the same folder."""


def data_folder(config_path: Path | None, data: Path | None) -> Path:
    """Where `up` keeps what is embedded."""
    return data if data is not None else (config_path or DEFAULT_PATH).absolute().parent / FOLDER


@contextmanager
def announced(folder: Path) -> Iterator[Announcement]:
    """Claims the folder while the context lasts. Raises RunsAlready."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / _NAME
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # urls may hold passwords
    try:
        if not _locked(handle):
            raise RunsAlready(f"`riverrun up` runs on {folder} already")
        os.fchmod(handle, 0o600)
        os.ftruncate(handle, 0)
        yield Announcement(handle)
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Takes the lock, past the moments in which others look."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(0.05)
    return False


class Announcement:
    """The file that others read; it holds for as long as this program lives."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def tell(self, words: Mapping[str, str]) -> None:
        """Replaces what it says."""
        # JSON's strings are TOML's too, but for characters that no url holds.
        lines = [f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in words.items()]
        text = "".join(lines).encode()
        os.pwrite(self._handle, text, 0)
        os.ftruncate(self._handle, len(text))


def look(folder: Path) -> dict[str, str]:
    """What the `up` that runs on this folder says; empty where none does."""
    try:
        handle = os.open(folder / _NAME, os.O_RDONLY)
    except OSError:
        return {}
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        with os.fdopen(os.dup(handle), "rb") as file:
            return _parsed(file.read())
    finally:
        os.close(handle)
    return {}  # nobody holds it: left behind by one that was killed


def _parsed(data: bytes) -> dict[str, str]:
    try:
        return cast("dict[str, str]", tomllib.loads(data.decode()))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}  # it is just being written


def with_running(
    config: Config, config_path: Path | None, data: Path | None, parts: Sequence[str] = ("log", "store")
) -> Config:
    """The configuration with the urls of the running `up` where these parts say `embedded://`. Raises
    NothingRuns."""
    missing = [name for name in parts if getattr(config, name).url == EMBEDDED]
    if not missing:
        return config
    folder = data_folder(config_path, data)
    found = look(folder)
    if not all(name in found for name in missing):
        keys = " and ".join(f"{name}.url" for name in missing)
        raise NothingRuns(
            f"no `riverrun up` runs on {folder}, and {keys} {'is' if len(missing) == 1 else 'are'} "
            "embedded: start it, or name running servers (kafka://host:9092 or redis://host:6379/0 as log, "
            "redis://host:6379/0 as store)"
        )
    return config.model_copy(
        update={name: getattr(config, name).model_copy(update={"url": found[name]}) for name in missing}
    )
