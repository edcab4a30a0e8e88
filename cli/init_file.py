"""Guesses a configuration from a sample file."""

from __future__ import annotations

import json
import math
import re
import tomllib
from pathlib import Path
from typing import cast, get_args

from pydantic import ValidationError

from cli.config_problems import describe
from cli.files.guess_features import FeatureGuess, guess_features
from cli.files.guess_label import LabelGuess, guess_label
from cli.files.profile import ColumnProfile, profile
from cli.files.rows import Table
from cli.files.tables import check_columns, open_table
from cli.files.times import to_times
from core.config import Config
from core.errors import ConfigError
from core.schema import Task

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_DAY_MS = 86_400_000
_WAIT_DAYS = 7  # JoinConfig.expire_after
_MODEL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def guess_config(
    path: Path,
    model: str,
    label: str,
    ts: str | None,
    label_ts: str | None,
    id_column: str | None,
    task: str | None,
) -> str:
    """The text of a riverrun.toml for the rows of a file, ready to run and with a comment on each choice.
    Reads the whole file.

    Raises ConfigError: a file that cannot be read, columns that it lacks, a label that leaves the task
    open (say `task`), ids that come twice, times that are none, no feature left.
    """
    if not _MODEL_NAME.fullmatch(model):
        raise ConfigError(f"--model: 1 to 64 of A-Z a-z 0-9 _ -, not {model!r}")
    if task is not None and task not in get_args(Task):
        raise ConfigError(f"--task: one of {', '.join(get_args(Task))}, not {task!r}")
    table = open_table(path)
    given = {"--label": label, "--ts": ts, "--label-ts": label_ts, "--id": id_column}
    check_columns(path, table, {column: option for option, column in given.items() if column is not None})
    if len({c for c in given.values() if c}) < sum(1 for c in given.values() if c):
        raise ConfigError("--label, --ts, --label-ts and --id: each a column of its own")
    if label_ts is not None and ts is None:
        raise ConfigError("--label-ts: say `--ts` too, so that it is known how much later labels come")
    for option, column in (("--ts", ts), ("--label-ts", label_ts)):
        if column is not None:
            _check_times(path, table, option, column)
    columns = profile(table, [c for c in table.columns if c not in (ts, label_ts)])
    if id_column is not None:
        _check_ids(path, columns[id_column])
    guess = guess_label(path, table, columns[label], cast("Task | None", task))
    special = {c for c in given.values() if c is not None}
    others = [c for name, c in columns.items() if name not in special]
    features = guess_features(others, columns[label])
    if all(f.reason for f in features):
        left = ", ".join(f"{f.name} ({f.reason})" for f in features) or "there are no other columns"
        raise ConfigError(f"{path}: no column is left as a feature: {left}")
    slowest = None if ts is None or label_ts is None else _slowest_ms(table, ts, label_ts)
    text = _text(path, model, columns, given, guess, features, slowest)
    _check(text)
    return text


def _check_times(path: Path, table: Table, option: str, column: str) -> None:
    known = unreadable = 0
    example = ""
    for rows in table.batches([column]):
        times = to_times(rows.columns[column])
        known += int(times.known.sum())
        unreadable += len(times.raw)
        example = example or str(next(iter(times.raw.values()), ""))[:40]
    if unreadable > known:
        raise ConfigError(
            f'{path}: {option}: "{column}" holds no times (RFC 3339, dates, or epoch milliseconds), '
            f"for example {example!r}"
        )
    if not known:
        raise ConfigError(f'{path}: {option}: "{column}" is empty')


def _check_ids(path: Path, column: ColumnProfile) -> None:
    twice = column.present - column.distinct
    if column.missing or (twice and not column.distinct_capped):
        problem = (
            f"{column.missing} cells are empty" if column.missing else f"{twice} rows repeat another's id"
        )
        raise ConfigError(
            f'{path}: --id: "{column.name}" does not tell every row from the others: {problem}; '
            "without `--id` rows are numbered"
        )


def _text(
    path: Path,
    model: str,
    columns: dict[str, ColumnProfile],
    given: dict[str, str | None],
    guess: LabelGuess,
    features: list[FeatureGuess],
    slowest_ms: int | None,
) -> str:
    label, label_ts = given["--label"], given["--label-ts"]
    rows = max((c.rows for c in columns.values()), default=0)
    truth = columns[str(label)]
    lines = [
        f"# Guessed from {_comment(path.name)}: {rows} rows.",
        "# Try it:  riverrun backtest FILE -c THIS_FILE",
        "",
        f"[models.{model}]",
        f"task = {_quoted(guess.task)}  # {guess.why}",
        f"events = {_quoted(model + '.events')}",
    ]
    if label_ts is not None:
        lines.append(f"labels = {_quoted(model + '.labels')}  # labels come later, in a topic of their own")
    lines.append(f"label = {_quoted(str(label))}")
    if truth.missing:
        lines[-1] += f"  # {truth.missing} rows have none: they are predicted, and never learned"
    if guess.classes is not None:
        note = "  # the positive class last" if guess.task == "binary" else ""
        lines.append(f"classes = [{', '.join(_value(c) for c in guess.classes)}]{note}")
        if len(guess.classes) > 100:
            lines.append(f"max_classes = {len(guess.classes)}")
    lines += ["", f"[models.{model}.features]  # `?`: may be missing; whole numbers are float too"]
    lines += [f"{_key(f.name)} = {_quoted(f.spec)}{_note(f.note)}" for f in features if not f.reason]
    out = [f for f in features if f.reason]
    if out:
        lines.append("# Left out:")
        lines += [f"# {_key(f.name)} = {_quoted(f.spec)}{_note(f.reason)}" for f in out]
    lines += ["", f"[models.{model}.file]  # how the rows of a file become events and labels"]
    lines += _file_lines(columns, given)
    if slowest_ms is not None:
        days = max(_WAIT_DAYS, math.ceil(1.25 * slowest_ms / _DAY_MS))
        lines += ["", f"[models.{model}.join]", f'expire_after = "{days}d"  # {_slowest(slowest_ms)}']
    lines += [
        "",
        f"[models.{model}.window]",
        "count = 1  # learn each example at once",
        "",
        f"[models.{model}.learner]",
        'kind = "linear"',
        "",
        f"[models.{model}.drift]",
        'detectors = ["adwin"]',
        'on_drift = "alert"  # "challenger" also trains a new model at each drift, which must prove better',
    ]
    return "\n".join(lines) + "\n"


def _slowest_ms(table: Table, ts: str, label_ts: str) -> int:
    """The longest that a label came after its event; 0 where none did."""
    slowest = 0
    for rows in table.batches([ts, label_ts]):
        at, known = to_times(rows.columns[ts]), to_times(rows.columns[label_ts])
        both = at.known & known.known
        if both.any():
            slowest = max(slowest, int((known.ms - at.ms)[both].max()))
    return slowest


def _slowest(ms: int) -> str:
    size, unit = (_DAY_MS, "days") if ms >= 2 * _DAY_MS else (_DAY_MS // 24, "hours")
    return f"the slowest label came {ms / size:.1f} {unit} after its event"


def _file_lines(columns: dict[str, ColumnProfile], given: dict[str, str | None]) -> list[str]:
    label, ts, label_ts, id_column = given.values()
    others = [c for name, c in columns.items() if name not in given.values()]
    lines = []
    if id_column is not None:
        lines.append(f"id = {_quoted(id_column)}")
    else:
        unique = [c.name for c in others if not c.missing and c.distinct == c.rows and c.text and not c.times]
        hint = f"; `--id {unique[0]}` would take that column" if unique else ""
        lines.append(f"# id: the row number{_comment(hint)}")
    if ts is not None:
        lines.append(f"ts = {_quoted(ts)}")
    else:
        times = [c.name for c in others if c.text and c.present and c.times == c.present]
        hint = f"; `--ts {times[0]}` would take that column" if times else ""
        lines.append(f"# ts: the row number{_comment(hint)}")
    lines.append(f"label = {_quoted(str(label))}")
    if label_ts is not None:
        lines.append(f"label_ts = {_quoted(label_ts)}  # empty: the label never comes")
    else:
        lines.append("# label_ts: the label is known with the event")
    return lines


def _check(text: str) -> None:
    """What is written must load."""
    data = tomllib.loads(text)
    try:
        Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError([line for line, _ in describe(error, data, {})]) from None


def _value(value: bool | int | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _quoted(value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes, with DEL escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _note(text: str) -> str:
    return f"  # {_comment(text)}" if text else ""


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
