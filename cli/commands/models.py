"""`riverrun models`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from cli.console import note, out, print_json, table
from cli.load_config import pick_model
from cli.running import with_running
from cli.wiring import config_option, data_option, json_option, read_config, read_running, services
from core.config import Config
from core.errors import RiverrunError, UnknownModel
from core.records import Lane
from snapshots.open_store import Store
from stream.driver.delivery import ALERTS
from stream.log.log import Log


@click.group("models", help="List, show, promote or roll back models.")
def command() -> None:
    """Subcommands below."""


@command.command("list", help="Every model's versions that serve, and in which role.")
@config_option
@data_option
@json_option
def list_models(config_path: Path | None, data: Path | None, as_json: bool) -> None:
    """One row a role."""
    config = read_running(config_path, data)
    with services(config) as (_, store):
        rows = [row for model in store.snapshots.models() for row in serving_rows(store, model)]
    if as_json:
        print_json(rows)
        return
    told = table("model", "version", "role", "lineage", "trained through", "quality")
    for row in rows:
        told.add_row(
            row["model"], str(row["version"]), row["role"], row["lineage"], row["trained_through"] or "",
            headline(row["metrics"]),
        )  # fmt: skip
    out.print(told if rows else "no model has a version yet")


@command.command("show", help="One model: roles, quality, counters, the last changes of role.")
@click.argument("model")
@config_option
@data_option
@json_option
def show_model(model: str, config_path: Path | None, data: Path | None, as_json: bool) -> None:
    """The newest version's manifest, and the audit."""
    config = read_running(config_path, data)
    with services(config) as (_, store):
        versions = list(store.snapshots.versions(model))
        if not versions:
            raise UnknownModel(f'model "{model}": no version yet; is `riverrun train` running?')
        manifest = store.snapshots.load(model, versions[-1], parts=()).manifest
        owner = store.ownership.owner(model)
        shown = {
            "model": model,
            "versions": versions,
            "roles": serving_rows(store, model),
            "baselines": manifest["baselines"],
            "counts": manifest["counts"],
            "counters": manifest["counters"],
            "dead_letters": manifest["dead_letters"],
            "drift": manifest["drift"],
            "owner": None if owner is None else {"name": owner[0], "epoch": owner[1]},
            "changes": [
                {"at": instant(change["at_ms"]), "reason": change["reason"], "revision": change["revision"]}
                for change in store.snapshots.audit(model, 20)
            ],
        }
    if as_json:
        print_json(shown)
        return
    for row in shown["roles"]:
        out.print(
            f"{row['role']}: version {row['version']}, lineage {row['lineage']}, {headline(row['metrics'])}"
        )
    for name in ("baselines", "counts", "counters", "dead_letters", "drift", "owner"):
        out.print(f"{name.replace('_', ' ')}: {_in_words(shown[name])}")
    for change in shown["changes"]:
        out.print(f"{change['at']} {change['reason']}")


@command.command("promote", help="Let a challenger serve as champion, now.")
@click.argument("model")
@click.option("--lineage", help="Which one; may be left out where there is one challenger.")
@config_option
@data_option
@json_option
def promote(
    model: str, lineage: str | None, config_path: Path | None, data: Path | None, as_json: bool
) -> None:
    """Asks the trainer, and waits for its answer."""
    _ask(model, {"do": "promote", "lineage": lineage}, config_path, data, as_json)


@command.command("rollback", help="Let the champion before this one serve again, now.")
@click.argument("model")
@config_option
@data_option
@json_option
def rollback(model: str, config_path: Path | None, data: Path | None, as_json: bool) -> None:
    """Asks the trainer, and waits for its answer."""
    _ask(model, {"do": "rollback"}, config_path, data, as_json)


def _ask(
    model: str, request: Mapping[str, Any], config_path: Path | None, data: Path | None, as_json: bool
) -> None:
    config = read_config(config_path)
    pick_model(config, model)
    with services(with_running(config, config_path, data)) as (log, store):
        answer = ask_trainer(config, log, store, model, request)
    if as_json:
        print_json(answer)
    elif answer["ok"]:
        out.print(answer["detail"])
    if not answer["ok"]:
        raise RiverrunError(f"model {model}: {answer['detail']}")


def ask_trainer(
    config: Config, log: Log, store: Store, model: str, request: Mapping[str, Any], wait_s: float = 20.0
) -> dict[str, Any]:
    """{ok, detail}: the trainer's answer to a command. Raises RiverrunError where no trainer runs."""
    if store.ownership.owner(model) is None:
        raise RiverrunError(
            f"model {model}: no trainer owns it; start `riverrun train`, which carries this out"
        )
    topic = f"{config.log.prefix}.{ALERTS}"
    log.create(topic)
    at = {lane: log.bounds(lane)[1] for lane in log.lanes(topic)}
    command_id = uuid.uuid4().hex
    store.commands.push(model, {"id": command_id, **request})
    note("asked; waiting for the trainer")
    for alert in _alerts(log, at, time.monotonic() + wait_s):
        if alert.get("command") == command_id:
            return {"ok": alert["ok"], "detail": alert["detail"]}
    raise RiverrunError(
        f"model {model}: the trainer has not answered in {wait_s:.0f} s; the command stays queued"
    )


def _alerts(log: Log, at: dict[Lane, int], until_s: float) -> Iterator[dict[str, Any]]:
    while time.monotonic() < until_s:
        for lane, records in log.read(at, 100, 0.5).items():
            at[lane] = records.next_offset
            for value in records.values:
                if value is not None:
                    yield msgspec.json.decode(value)


def serving_rows(store: Store, model: str) -> list[dict[str, Any]]:
    """The model's roles as `models list` tells them."""
    rows = []
    for role, assignment in store.snapshots.rollout(model).assigned():
        manifest = store.snapshots.load(model, assignment.version, parts=()).manifest
        lineage = manifest["lineages"][assignment.lineage]
        rows.append(
            {
                "model": model,
                "version": assignment.version,
                "role": role,
                "lineage": assignment.lineage,
                "created_at": instant(manifest["created_at_ms"]),
                "trained_through": instant(manifest["trained_through_ms"])
                if manifest["trained_through_ms"]
                else None,
                "metrics": lineage["metrics"],
            }
        )
    return rows


def _in_words(values: Mapping[str, Any] | None) -> str:
    told = (f"{name.replace('_', ' ')} {_value(value)}" for name, value in (values or {}).items())
    return ", ".join(told) or "none"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value):,}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def instant(ms: int) -> str:
    """RFC 3339, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def headline(metrics: Mapping[str, float | None]) -> str:
    """The one number that people look at first."""
    for name in ("accuracy", "mae"):
        value = metrics.get(name)
        if value is not None:
            return f"{name} {value:.4f}"
    return "no example yet"
