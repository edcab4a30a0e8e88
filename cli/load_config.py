"""Reads the configuration; every problem found is told at once, each with its path and its mend."""

from __future__ import annotations

import copy
import difflib
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from cli.config_problems import Problem, describe, mend
from cli.env_overlay import overlay
from core.config import Config, ModelConfig
from core.errors import ConfigError, UnknownModel

DEFAULT_PATH = Path("riverrun.toml")
Check = Callable[[str, ModelConfig], list[str]]  # model name, its configuration: problems with their paths
_MOST_ROUNDS = 8


def load_config(
    path: Path | None,
    environ: Mapping[str, str] = os.environ,
    *,
    require: Literal["models", "nothing"] = "models",
    checks: Sequence[Check] = (),
) -> Config:
    """The configuration in the file at `path` (None: riverrun.toml in the working directory), with
    `RIVERRUN__...` variables over it. `require="models"`: a file, with at least one model in it; "nothing":
    without a path, no file is needed. Each check looks at every model.

    Raises ConfigError listing all problems. Never tells a value that may hold a secret.
    """
    data, source = _read(path, require)
    written, problems = overlay(data, environ)
    config, found = _validated(data, written)
    problems += [line for line, _ in found]
    troubled = {path[1] for _, path in found if path[:1] == ("models",) and len(path) > 1}
    for name, model in {} if config is None else config.models.items():
        if name not in troubled:
            problems += [problem for check in checks for problem in check(name, model)]
    if require == "models" and not problems and not data.get("models"):
        problems.append("models: none configured; `riverrun init FILE` writes one for a sample file")
    if problems or config is None:
        raise ConfigError([f"{source}: {problem}" for problem in problems])
    return config


def _read(path: Path | None, require: str) -> tuple[dict[str, Any], str]:
    chosen = DEFAULT_PATH if path is None else path
    if path is None and require == "nothing" and not chosen.exists():
        return {}, "configuration"
    try:
        text = chosen.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(
            f"{chosen}: no such file; `riverrun init FILE --model NAME --label COLUMN -o {chosen}` makes one "
            "from a sample file, `-c PATH` names another"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{chosen}: not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{chosen}: cannot be read: {error.strerror}") from None
    try:
        return tomllib.loads(text), str(chosen)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{chosen}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{chosen}: not valid TOML: nested too deep") from None


def _validated(
    data: dict[str, Any], written: Mapping[tuple[str, ...], str]
) -> tuple[Config | None, list[Problem]]:
    """Validation stops at the first wrong part of a table: what is wrong is mended in a copy, and the copy
    looked at again, until it is right. The configuration is then that of the copy."""
    found: list[Problem] = []
    data = copy.deepcopy(data)
    for _ in range(_MOST_ROUNDS):
        try:
            return Config.model_validate(data), found
        except ValidationError as error:
            if _texts_where_due(error, data, written):
                continue
            problems = describe(error, data, written)
            found += problems
            for _, path in problems:
                mend(data, path)
    return None, found


def _texts_where_due(
    error: ValidationError, data: dict[str, Any], written: Mapping[tuple[str, ...], str]
) -> bool:
    """A variable's 12 is "12" where the configuration wants text. True: some value was changed."""
    changed = False
    for problem in error.errors(include_input=False, include_url=False):
        path = tuple(map(str, problem["loc"]))
        if problem["type"] == "string_type" and path in written:
            node: Any = data
            for step in path[:-1]:
                node = node[step]
            if isinstance(node[path[-1]], (int, float)) and not isinstance(node[path[-1]], bool):
                node[path[-1]] = str(node[path[-1]])
                changed = True
    return changed


def pick_model(config: Config, name: str | None) -> tuple[str, ModelConfig]:
    """The named model, or the only one. Raises UnknownModel for a name that is not configured, ConfigError
    where a name is needed."""
    if name is None:
        if len(config.models) == 1:
            return next(iter(config.models.items()))
        raise ConfigError(
            f"which model? `--model` one of: {', '.join(config.models) or 'none is configured'}"
        )
    if name not in config.models:
        close = difflib.get_close_matches(name, config.models, n=1)
        mend = f'did you mean "{close[0]}"?' if close else f"configured: {', '.join(config.models) or 'none'}"
        raise UnknownModel(f'no model "{name}"; {mend}')
    return name, config.models[name]
