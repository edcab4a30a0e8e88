"""`riverrun doctor`."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import redis
from rich.text import Text

from cli.console import counted, out, print_json
from cli.processes import direct
from cli.running import EMBEDDED, data_folder, look
from cli.wiring import config_option, data_option, json_option, read_config
from core.config import Config
from core.errors import ConfigError, RiverrunError, UnknownTopic
from snapshots.open_store import Store, open_store, redacted
from stream.log.log import Log
from stream.log.open_log import open_log


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at; `fix` says what to do where it is not ok."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


@click.command("doctor", help="Check the configuration, the services and their settings, in words.")
@config_option
@data_option
@json_option
def command(config_path: Path | None, data: Path | None, as_json: bool) -> None:
    """Fails where a check fails."""
    checks = list(examine(config_path, data_folder(config_path, data)))
    well = all(check.ok for check in checks)
    if as_json:
        print_json({"ok": well, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            mark = Text("ok", "green") if check.ok else Text("NO", "red")
            out.print(mark, f"{check.name}: {check.detail}")
            if not check.ok and check.fix:
                out.print(f"   to do: {check.fix}")
    if not well:
        raise SystemExit(1)


def examine(config_path: Path | None, folder: Path) -> Iterator[Check]:
    """Every check, in the order in which things build on each other. `folder`: where `up` keeps what is
    embedded."""
    try:
        config = read_config(config_path)
    except ConfigError as error:
        yield from (Check("configuration", False, problem, "edit the file") for problem in error.problems)
        return
    named = ", ".join(config.models)
    yield Check("configuration", True, f"{'model' if len(config.models) == 1 else 'models'} {named}")
    running = look(folder)
    if running:
        yield Check("up", True, f"runs on {folder}")
    yield from _log(config, _url(config.log.url, "log", running), folder)
    yield from _store(config, _url(config.store.url, "store", running), folder)
    yield _predictor(running.get("predictor") or f"http://{config.serving.host}:{config.serving.port}")


def _url(configured: str, name: str, running: Mapping[str, str]) -> str:
    return running.get(name, EMBEDDED) if configured == EMBEDDED else configured


def _not_up(name: str, folder: Path) -> Check:
    return Check(
        name,
        False,
        f"embedded, and no `riverrun up` runs on {folder}",
        f"start `riverrun up`, or name a server as {name}.url",
    )


def _log(config: Config, url: str, folder: Path) -> Iterator[Check]:
    if url == EMBEDDED:
        yield _not_up("log", folder)
        return
    try:
        log = open_log(url, config.log.options)
    except ConfigError as error:
        yield Check("log", False, str(error), "correct log.url or log.options")
        return
    try:
        yield from _topics(config, log, url)
    finally:
        log.close()


def _topics(config: Config, log: Log, url: str) -> Iterator[Check]:
    for name, model in config.models.items():
        for topic in filter(None, (model.events, model.labels)):
            try:
                lanes = log.lanes(topic)
                records = sum(following - oldest for oldest, following in map(log.bounds, lanes))
                yield Check(
                    "topic",
                    True,
                    f"{name}: {topic}, {counted(len(lanes), 'partition')}, {counted(records, 'record')}",
                )
            except UnknownTopic as error:
                yield Check("topic", False, f"{name}: {error}", f"create the topic {topic}")
            except RiverrunError as error:
                yield Check("log", False, str(error), f"start the log at {redacted(url)}")
                return


def _store(config: Config, url: str, folder: Path) -> Iterator[Check]:
    if url == EMBEDDED:
        yield _not_up("store", folder)
        return
    shown = redacted(url)
    try:
        store = open_store(url)
    except ConfigError as error:
        yield Check("store", False, str(error), "correct store.url")
        return
    try:
        store.ping()
        yield Check("store", True, f"{shown} answers")
        yield from _redis_settings(url)
        yield from _models(config, store)
    except RiverrunError as error:
        yield Check("store", False, str(error), f"start Redis at {shown}")
    finally:
        store.close()


def _redis_settings(url: str) -> Iterator[Check]:
    if url.startswith("memory"):
        return
    wanted: list[tuple[str, Callable[[str], bool], str]] = [
        (
            "appendonly",
            lambda v: v == "yes",
            "set appendonly yes: without it a crash loses acknowledged versions",
        ),
        (
            "maxmemory-policy",
            lambda v: v == "noeviction",
            "set maxmemory-policy noeviction: others delete versions",
        ),
    ]
    with _connection(url) as client:
        for name, good, fix in wanted:
            try:
                value = str(client.config_get(name).get(name, ""))
            except redis.RedisError as error:
                yield Check("redis", True, f"{name}: this user may not read it ({type(error).__name__})")
                continue
            yield Check("redis", good(value), f"{name} is {value}", fix)


@contextmanager
def _connection(url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(url, decode_responses=True, socket_timeout=5)
    try:
        yield client
    finally:
        client.close()


def _models(config: Config, store: Store) -> Iterator[Check]:
    for name in config.models:
        owner = store.ownership.owner(name)
        trainer = "no trainer owns it" if owner is None else f"trainer {owner[0]}, epoch {owner[1]}"
        versions = store.snapshots.versions(name)
        newest = f"version {versions[-1]}" if versions else "no version yet"
        well = owner is not None and bool(versions)
        yield Check(
            "model", well, f"{name}: {newest}, {trainer}", "start `riverrun train`, and send labelled events"
        )


def _predictor(base: str) -> Check:
    url = f"{base.replace('//0.0.0.0:', '//127.0.0.1:')}/readyz"
    try:
        with direct.open(url, timeout=2) as answer:
            return Check("predictor", True, f"{url} {answer.status}")
    except urllib.error.HTTPError as error:
        return Check("predictor", False, f"{url} {error.code}", "it serves, but has no model yet: see above")
    except OSError as error:
        said = getattr(error, "reason", error)
        return Check("predictor", False, f"{url}: {said}", "start `riverrun serve`")
