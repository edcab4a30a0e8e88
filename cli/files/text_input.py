"""Opening text files that may be compressed."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from core.errors import ConfigError


def member_name(path: Path) -> str:
    """The name of what is inside: the file's own, less `.gz`, or that of a zip file's one member."""
    if path.suffix.lower() == ".gz":
        return path.name[: -len(".gz")]
    if path.suffix.lower() != ".zip":
        return path.name
    try:
        with zipfile.ZipFile(path) as archive:
            return _only_member(path, archive).filename
    except (zipfile.BadZipFile, OSError) as error:
        raise ConfigError(f"{path}: not a readable zip file: {error}") from None


def _only_member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = [m for m in archive.infolist() if not m.is_dir() and not m.filename.startswith("__MACOSX/")]
    if len(members) != 1:
        raise ConfigError(f"{path}: a zip file with one file in it, not {len(members)}")
    return members[0]


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked. Raises ConfigError where packing or reading is broken, also while the
    body reads."""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path) as stream:
                yield cast(IO[bytes], stream)
        elif path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive, archive.open(_only_member(path, archive)) as member:
                yield member
        else:
            with path.open("rb") as plain:
                yield plain
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
