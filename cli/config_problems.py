"""What pydantic found wrong with a configuration, in words: path, problem, mend."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import ValidationError

from cli.env_overlay import FileText, section_at
from core.config import Config, ModelConfig
from core.errors import ConfigError
from core.schema import KINDS, parse_schema

_SECRET_WORDS = ("password", "passwd", "secret", "token", "key", "credential", "url", "jaas", "options")
_MOST_CHARS = 60
_PLAIN_MESSAGES = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text in quotes",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "list_type": "a list: [...]",
    "dict_type": "a table",
    "model_type": "a table",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


Path = tuple[str | int, ...]
Problem = tuple[str, Path]  # what to tell, where it is


def describe(
    error: ValidationError, data: dict[str, Any], written: Mapping[tuple[str, ...], str]
) -> list[Problem]:
    """One line a problem, in the order of the file's sections. `written` tells which paths came from which
    environment variable."""
    found: dict[Path, list[str]] = {}
    for problem in error.errors(include_input=False, include_url=False):
        path, value = _resolve(problem["loc"], data)
        if problem["type"] == "missing":
            path = (*path, problem["loc"][-1])
        if path[:1] == ("models",) and path[2:3] == ("features",) and problem["type"] != "missing":
            path, value = _resolve(path[:3], data)
            for name, text in _feature_problems(value):
                found.setdefault((*path, name) if name else path, [text])
            continue
        texts = found.setdefault(path, [])
        text = _text(dict(problem), path, value)
        if text not in texts:
            texts.append(text)
    inner = {path[:i] for path in found for i in range(len(path))}
    return [
        (_line(path, texts, data, written), path)
        for path, texts in found.items()
        # A union's other branches complain about the whole; what is wrong lies inside.
        if not (path in inner and isinstance(_resolve(path, data)[1], (dict, list)) and _only_types(texts))
    ]


def _only_types(texts: list[str]) -> bool:
    return all(text.endswith(tuple(_PLAIN_MESSAGES.values())) for text in texts)


_STAND_INS = {"task": "multiclass", "events": "?", "features": "any"}


def mend(data: dict[str, Any], path: Path) -> None:
    """Takes what is wrong at a path out of the data, or puts in what is missing, so that the rest can be
    looked at."""
    if path == ("models",) and isinstance(data["models"], dict):
        for name in [n for n in data["models"] if not _is_name(n)][:1]:
            del data["models"][name]
        return
    if path == () or not isinstance(path[-1], str):
        path = path[:-1]
    node: Any = data
    for i, step in enumerate(path[:-1]):
        if step not in node:
            return  # mended already
        if step == "features" or isinstance(node[step], list):
            path = path[: i + 1]
            break
        node = node[step]
    if path[:1] == ("models",) and len(path) == 3 and path[2] in _STAND_INS:
        node[path[2]] = _STAND_INS[str(path[2])]
    elif path[:1] == ("models",) and len(path) == 2 and isinstance(node[path[1]], dict):
        node[path[1]].pop("classes", None)
    elif path:
        node.pop(path[-1], None)
    else:
        data.clear()


def _is_name(name: str) -> bool:
    try:
        Config(models={name: ModelConfig(task="multiclass", events="?", features="any")})
    except ValidationError:
        return False
    return True


def _resolve(loc: Path, data: Any) -> tuple[Path, Any]:
    """The part of pydantic's location that exists in the data (it also names the branches of unions)."""
    path: Path = ()
    node = data
    for step in loc:
        inside = isinstance(step, int) and step < len(node) if isinstance(node, list) else None
        if inside or (isinstance(node, dict) and step in node):
            node = node[step]
            path = (*path, step)
    return path, node


def _feature_problems(value: Any) -> list[tuple[str, str]]:
    if not isinstance(value, (dict, str)):
        return [("", 'a table of features, or "any"')]
    wrong: list[tuple[str, str]] = []
    if isinstance(value, dict) and value:
        texts = {n: v for n, v in value.items() if isinstance(v, str)}
        wrong = [(n, f"a kind in quotes: {_either(KINDS)}") for n in value if n not in texts]
        value = texts or "any"
    try:
        parse_schema(value)
    except ConfigError as error:
        wrong += [_feature_problem(p, value) for p in error.problems]
    return wrong


def _feature_problem(problem: str, value: Any) -> tuple[str, str]:
    head, _, text = problem.partition(": ")
    name = head.removeprefix("features").removeprefix(".")
    if not name:
        return "", text
    spec = value.get(name, "") if isinstance(value, dict) else ""
    close = difflib.get_close_matches(spec.partition("?")[0].strip(), KINDS, n=1)
    return name, text + (f'; did you mean "{close[0]}"?' if close else "")


def _text(problem: dict[str, Any], path: Path, value: Any) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "missing":
        return _missing(path)
    if kind == "extra_forbidden":
        return "unknown key" + _close(str(path[-1]), _known(path[:-1]))
    if kind == "literal_error":
        choices = _choices(path)
        return f"{_shown(path, value)}one of {_either(choices)}" + _close(str(value), choices)
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{_shown(path, value)}{words} {context[name]}"
    if kind in _PLAIN_MESSAGES:
        return f"{_shown(path, value)}{_PLAIN_MESSAGES[kind]}"
    message = str(problem["msg"])
    if kind == "value_error":
        message = message.removeprefix("Value error, ")
        # Messages of validators may quote the value.
        return (
            "not a value that fits"
            if _is_secret(path)
            else message.removeprefix(f"{path[-1:] and path[-1]}: ")
        )
    return f"{_shown(path, value)}{message[:1].lower()}{message[1:]}"


def _missing(path: Path) -> str:
    examples = {
        "task": 'add task = "binary", "multiclass" or "regression"',
        "events": 'add events = "TOPIC"',
        "features": 'add a table of features, or features = "any"',
    }
    return "missing; " + examples.get(str(path[-1]), "add it")


def _known(parent: Path) -> list[str]:
    section = section_at(parent)
    return [] if section is None else list(section.model_fields)


def _choices(path: Path) -> list[str]:
    section = section_at(path[:-1])
    field = section.model_fields.get(str(path[-1])) if section is not None else None
    return [] if field is None else [str(c) for c in get_args(field.annotation)]


def _close(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; known: {', '.join(known)}" if known and len(known) <= 12 else ""


def _either(choices: Any) -> str:
    return ", ".join(map(str, choices))


def _is_secret(path: Path) -> bool:
    return any(word in str(step).lower() for step in path for word in _SECRET_WORDS)


def _shown(path: Path, value: Any) -> str:
    if _is_secret(path):
        return "must be "
    if isinstance(value, dict):
        return "a table where something else is due: "
    if isinstance(value, FileText) or "://" in str(value):
        return "must be "  # what is in the wrong place may still be a secret
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return f"{text[:_MOST_CHARS]} is not " if len(text) <= _MOST_CHARS else "must be "


def _line(
    path: Path,
    texts: list[str],
    data: dict[str, Any],
    written: Mapping[tuple[str, ...], str],
) -> str:
    dotted = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in path).lstrip(".")
    if len(texts) > 1:  # the branches of a union: the value fits none
        head = _shown(path, _resolve(path, data)[1])
        bare = [t.removeprefix(head) for t in texts]
        texts = [head + " or ".join(dict.fromkeys(bare))]
    variable = next((v for p, v in written.items() if p == tuple(map(str, path))[: len(p)]), None)
    where = f"{dotted} (from {variable})" if variable else dotted
    return f"{where}: {texts[0]}" if where else texts[0]
