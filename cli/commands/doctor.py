"""`riverrun doctor`."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import redis
from rich.markup import escape

from cli.console import out, print_json
from cli.wiring import EMBEDDED, config_option, json_option, read_config
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
@json_option
def command(config_path: Path | None, as_json: bool) -> None:
    """Fails where a check fails."""
    checks = list(examine(config_path))
    well = all(check.ok for check in checks)
    if as_json:
        print_json({"ok": well, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            mark = "[green]ok[/]" if check.ok else "[red]NO[/]"
            out.print(f"{mark} {check.name}: {escape(check.detail)}")
            if not check.ok and check.fix:
                out.print(f"   {check.fix}")
    if not well:
        raise SystemExit(1)


def examine(config_path: Path | None) -> Iterator[Check]:
    """Every check, in the order in which things build on each other."""
    try:
        config = read_config(config_path)
    except ConfigError as error:
        yield from (Check("configuration", False, problem, "edit the file") for problem in error.problems)
        return
    yield Check("configuration", True, f"{len(config.models)} models: {', '.join(config.models)}")
    yield from _log(config)
    yield from _store(config)
    yield _predictor(config)


def _log(config: Config) -> Iterator[Check]:
    if config.log.url == EMBEDDED:
        yield Check("log", True, "embedded: started by `riverrun up`")
        return
    try:
        log = open_log(config.log.url, config.log.options)
    except ConfigError as error:
        yield Check("log", False, str(error), "correct log.url or log.options")
        return
    try:
        yield from _topics(config, log)
    finally:
        log.close()


def _topics(config: Config, log: Log) -> Iterator[Check]:
    for name, model in config.models.items():
        for topic in filter(None, (model.events, model.labels)):
            try:
                lanes = log.lanes(topic)
                records = sum(following - oldest for oldest, following in map(log.bounds, lanes))
                yield Check(
                    "topic", True, f"{name}: {topic}, {len(lanes)} partitions, about {records:,} records"
                )
            except UnknownTopic as error:
                yield Check("topic", False, f"{name}: {error}", f"create the topic {topic}")
            except RiverrunError as error:
                yield Check("log", False, str(error), f"start the log at {redacted(config.log.url)}")
                return


def _store(config: Config) -> Iterator[Check]:
    if config.store.url == EMBEDDED:
        yield Check("store", True, "embedded: started by `riverrun up`")
        return
    shown = redacted(config.store.url)
    try:
        store = open_store(config.store.url)
    except ConfigError as error:
        yield Check("store", False, str(error), "correct store.url")
        return
    try:
        store.ping()
        yield Check("store", True, f"{shown} answers")
        yield from _redis_settings(config.store.url)
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


def _predictor(config: Config) -> Check:
    url = f"http://{config.serving.host}:{config.serving.port}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # an http address of our own making
            return Check("predictor", True, f"{url} {answer.status}")
    except urllib.error.HTTPError as error:
        return Check("predictor", False, f"{url} {error.code}", "it serves, but has no model yet: see above")
    except OSError as error:
        return Check("predictor", False, f"{url}: {error}", "start `riverrun serve`")
