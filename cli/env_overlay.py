"""Environment variables over a configuration file: `RIVERRUN__LOG__URL` is `log.url`, and
`RIVERRUN__LOG__URL_FILE` names a file that holds it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel

from core.config import Config, ModelConfig

PREFIX = "RIVERRUN__"
_FILE = "_FILE"
Path = tuple[str, ...]


def overlay(data: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[Path, str], list[str]]:
    """Writes every `RIVERRUN__...` variable into `data`. Returns the paths written, each with its variable's
    name, and what is wrong with variables that have no place.

    Names match what is there without regard to case, `_` also for the `.` and `-` of a name; new keys of
    `log.options` get dots. Values are TOML where they parse as one value, else text.

    A last step that ends in `_FILE` names a file whose content, stripped and taken as text, is the value of
    the key without the ending: so secrets stay out of the environment. A key that itself ends so (such as
    serving.admin_token_file) comes first. Problems name the file, never what it holds.
    """
    written: dict[Path, str] = {}
    problems: list[str] = []
    for variable in sorted(v for v in environ if v.upper().startswith(PREFIX)):
        steps = variable[len(PREFIX) :].split("__")
        if not all(steps):
            problems.append(f"{variable}: an empty step in the name")
            continue
        path: Path = ()
        node: Any = data
        for i, step in enumerate(steps):
            if not isinstance(node, dict):
                problems.append(f"{variable}: {'.'.join(path)} is a value, not a table")
                break
            if i < len(steps) - 1:
                path = (*path, _match(step, node, path))
                node = node.setdefault(path[-1], {})
                continue
            by_file = step.upper().endswith(_FILE) and len(step) > len(_FILE) and not _known(step, node, path)
            path = (*path, _match(step[: -len(_FILE)] if by_file else step, node, path))
            if path in written:
                problems.append(
                    f"{variable}: {written[path]} sets {'.'.join(path)} already; keep one of them"
                )
                break
            try:
                node[path[-1]] = _content(environ[variable]) if by_file else parse_value(environ[variable])
            except ValueError as error:
                problems.append(f"{variable}: {error}")
            written[path] = variable
    return written, problems


class FileText(str):
    """A value that came from a file: never to be told."""

    __slots__ = ()


def _content(name: str) -> str:
    """The text in a file, stripped. Raises ValueError naming the file."""
    try:
        text = FilePath(name).read_bytes().decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ValueError(f"{name}: not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"{name or 'no file named'}: cannot be read: {error.strerror}") from None
    if not text:
        raise ValueError(f"{name}: is empty")
    return FileText(text)


def parse_value(text: str) -> Any:
    """A TOML value (number, boolean, array, ...; dates stay text), or the text itself."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    value = parsed["value"]
    alone = list(parsed) == ["value"] and isinstance(value, (bool, int, float, str, list, dict))
    return value if alone else text


def _known(step: str, node: dict[str, Any], path: Path) -> str | None:
    """The key that a step means, among those there and those that the table may have."""
    for same in (str.casefold, _plain):
        for name in (*node, *_fields(path)):
            if same(name) == same(step):
                return name
    return None


def _match(step: str, node: dict[str, Any], path: Path) -> str:
    known = _known(step, node, path)
    if known is not None:
        return known
    if path == ("log", "options"):
        return step.lower().replace("_", ".")
    return step.lower()


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(".", "_")


def _fields(path: Path) -> list[str]:
    section = section_at(path)
    return [] if section is None else list(section.model_fields)


def section_at(path: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The class of the table at a path, where it is one with keys of its own."""
    section: type[BaseModel] = Config
    steps = list(path)
    if steps[:1] == ["models"]:
        if len(steps) == 1:
            return None
        section, steps = ModelConfig, steps[2:]
    for step in steps:
        field = section.model_fields.get(str(step))
        annotation = None if field is None else field.annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return None
        section = annotation
    return section
