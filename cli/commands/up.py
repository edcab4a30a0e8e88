"""`riverrun up`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import click

from cli.commands.models import headline
from cli.console import err, note, out
from cli.embedded_redis import EmbeddedRedis
from cli.load_config import DEFAULT_PATH
from cli.processes import Processes, free_port
from cli.running import EMBEDDED, Announcement, announced, data_folder
from cli.wiring import config_option, create_topics, data_option, read_config, services
from core.config import Config, ModelConfig
from core.errors import RiverrunError
from snapshots.open_store import Store

_LISTENS_S = 60.0
_LOOK_S = 0.5
_SAMPLES: dict[str, object] = {"float": 1.5, "int": 1, "bool": True, "category": "a", "any": "a"}


class _Terminated(Exception):  # not an error: somebody told us to end
    """SIGTERM."""


@click.command("up", help="Log, store, trainer and predictor on this machine, until Ctrl-C.")
@config_option
@data_option
@click.option("--host", help="Where the predictor listens; overrides serving.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Overrides serving.port; 0 takes a free one.")
def command(config_path: Path | None, data: Path | None, host: str | None, port: int | None) -> None:
    """Runs everything that the configuration needs and that does not run elsewhere."""
    signal.signal(signal.SIGTERM, _on_sigterm)
    config = read_config(config_path)
    folder = data_folder(config_path, data)
    host = host or config.serving.host
    port = (config.serving.port if port is None else port) or free_port()
    try:
        with _services(config, folder) as (running, announcement, server), services(running) as (log, store):
            create_topics(log, running.models.values())
            with Processes(_environ(config, running), folder) as processes:
                path = str(config_path or DEFAULT_PATH)
                processes.start("trainer", ["train", "-c", path])
                processes.start("predictor", ["serve", "-c", path, "--host", host, "--port", str(port)])
                base = f"http://{_reached_at(host)}:{port}"
                processes.wait_ready(f"{base}/healthz", _LISTENS_S)
                announcement.tell({"log": running.log.url, "store": running.store.url, "predictor": base})
                _tell(config, base, folder)
                _watch(processes, server, store, list(running.models))
    except _Terminated:
        return


def _on_sigterm(_: int, __: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is being done
    raise _Terminated


@contextmanager
def _services(config: Config, folder: Path) -> Iterator[tuple[Config, Announcement, EmbeddedRedis | None]]:
    """The configuration with running urls, and the redis-server behind those that were embedded."""
    with announced(folder) as announcement, ExitStack() as closing:
        embedded = [name for name in ("log", "store") if getattr(config, name).url == EMBEDDED]
        if not embedded:
            yield config, announcement, None
            return
        note("starting the embedded redis-server")
        server = closing.enter_context(EmbeddedRedis(folder))
        update = {name: getattr(config, name).model_copy(update={"url": server.url}) for name in embedded}
        yield config.model_copy(update=update), announcement, server


def _environ(config: Config, running: Config) -> dict[str, str]:
    environ = dict(os.environ)
    for name in ("log", "store"):
        if getattr(config, name).url == EMBEDDED:
            environ[f"RIVERRUN__{name.upper()}__URL"] = getattr(running, name).url
    return environ


def _watch(processes: Processes, server: EmbeddedRedis | None, store: Store, models: list[str]) -> NoReturn:
    """Until a signal, or until a part fails. What was killed is started again."""
    with err.status("running") if err.is_terminal else ExitStack() as status:
        while True:
            for name in processes.revive():
                err.print(f"the {name} was killed: started again")
            if server is not None:
                server.start()  # does nothing while it runs
            if not isinstance(status, ExitStack):
                status.update(_standing(store, models))
            time.sleep(_LOOK_S)


def _standing(store: Store, models: list[str]) -> str:
    told = []
    try:
        for name in models:
            champion = store.snapshots.rollout(name).champion
            if champion is None:
                told.append(f"{name}: no version yet")
                continue
            manifest = store.snapshots.load(name, champion.version, parts=()).manifest
            events, quality = manifest["counts"]["events"], headline(manifest["metrics"])
            told.append(f"{name} v{champion.version}: {events:,} events, {quality}")
    except RiverrunError as error:
        return str(error)
    return "; ".join(told)


def _tell(config: Config, base: str, folder: Path) -> None:
    kept = [name for name in ("log", "store") if getattr(config, name).url == EMBEDDED]
    name, model = next(iter(config.models.items()))
    which = "" if len(config.models) == 1 else f" --model {name}"
    out.print(f"predictor: {base}")
    if kept:
        out.print(f"{' and '.join(kept)}: embedded, kept in {folder}")
    out.print(f"messages: {folder / 'trainer.log'}, {folder / 'predictor.log'}")
    out.print(f"send data: riverrun produce FILE{which}")
    ask = f"curl -H content-type:application/json {base}/v1/models/{name}/predict"
    out.print(f"ask: {ask} -d '{_question(model)}'")
    note("Ctrl-C ends everything; started again, it goes on where it was.")


def _question(model: ModelConfig) -> str:
    """A request that the model can answer."""
    features: dict[str, object] = {}
    for feature in model.schema_().features if not model.schema_().open else ():
        node = features
        for step in feature.steps[:-1]:
            node = node.setdefault(step, {})  # type: ignore[assignment]
        node[feature.steps[-1]] = _SAMPLES[feature.kind]
    return json.dumps({"features": features}).replace("'", "\\u0027")


def _reached_at(host: str) -> str:
    """How a client on this machine reaches what listens there."""
    anywhere: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  # only compared
    return anywhere.get(host, f"[{host}]" if ":" in host else host)
