"""Runs the demo's processes and watches them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.commands.models import instant, serving_rows
from cli.demo.client import Client, Served
from cli.demo.sprinkle import Sprinkler
from cli.demo_data import NAME, demo_config_text, demo_rows
from cli.file_events import FileChunk, FileEvents
from cli.processes import Processes, free_port
from cli.produce import Sent, produce
from core.clock import SystemClock
from core.config import Config, ModelConfig
from core.errors import RiverrunError
from snapshots.open_store import Store
from stream.driver.delivery import DEADLETTER
from stream.log.log import Log

_BAD_EVERY = 1_000  # one bad record behind so many good ones
_AT_LEAST_S = 8.0  # a run so short that no second version came would show nothing
_RATE = 22_000.0  # records a second
_ASK_RATE = 100.0  # requests a second


@dataclass(slots=True)
class Progress:
    """How far the demo is, for who looks on."""

    sent: Sent = field(default_factory=Sent)
    trained: int = 0  # events the newest version has seen
    version: int = 0
    accuracy: float | None = None
    roles: str = ""


@dataclass(slots=True)
class Outcome:
    """All that was measured."""

    manifest: dict[str, Any]
    sent: Sent
    injected: int
    dead_lettered: int
    seconds: float
    served: Served
    roles: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    versions: int


class Demo:
    """The whole loop on the bundled flights: producer and client here, trainer and predictor as processes
    of their own, over a log and a store that are there already. `environ` is what the processes get
    beside the configuration."""

    def __init__(
        self, folder: Path, config: Config, log: Log, store: Store, events: int, environ: Mapping[str, str]
    ) -> None:
        self._environ = environ
        self._folder = folder
        self._model: ModelConfig = config.models[NAME]
        self._config = config
        self._log = log
        self._store = store
        self._source: FileEvents = demo_rows(events, self._model)
        self._sprinkler = Sprinkler(_BAD_EVERY)
        self.rows = self._source.rows or events
        self.progress = Progress()

    def run(self, on_progress: Callable[[Progress], None]) -> Outcome:
        """Blocks until everything sent was learned. Raises RiverrunError where a part fails."""
        for topic in (self._model.events, str(self._model.labels), f"{self._config.log.prefix}.{DEADLETTER}"):
            self._log.create(topic)
        dead_before = self._dead_letters()
        path = self._folder / "riverrun.toml"
        path.write_text(demo_config_text())
        port = free_port()
        topics = f"RIVERRUN__MODELS__{NAME.upper()}__"
        environ = {
            **self._environ,
            "RIVERRUN__LOG__URL": self._config.log.url,
            "RIVERRUN__LOG__PREFIX": self._config.log.prefix,
            "RIVERRUN__STORE__URL": self._config.store.url,
            f"{topics}EVENTS": self._model.events,
            f"{topics}LABELS": str(self._model.labels),
        }
        with Processes(environ, self._folder) as processes:
            health = free_port()
            processes.start("trainer", ["train", "-c", str(path), "--metrics-port", str(health)])
            # Before anything is sent: the first run on a machine compiles, and would be all catching up.
            processes.wait_ready(f"http://127.0.0.1:{health}/healthz", 180, b"training")
            processes.start("predictor", ["serve", "-c", str(path), "--port", str(port)])
            processes.wait_ready(f"http://127.0.0.1:{port}/healthz", 60)
            client = Client("127.0.0.1", port, NAME, _ASK_RATE)
            started_s = time.monotonic()
            self._send_and_ask(processes, port, client, on_progress)
            seconds = time.monotonic() - started_s
            served = client.stop()
            processes.stop("trainer")
        versions = list(self._store.snapshots.versions(NAME))
        manifest = dict(self._store.snapshots.load(NAME, versions[-1], parts=()).manifest)
        return Outcome(
            manifest,
            self.progress.sent,
            self._sprinkler.injected,
            self._dead_letters() - dead_before,
            seconds,
            served,
            serving_rows(self._store, NAME),
            [
                {"at": instant(change["at_ms"]), "reason": change["reason"]}
                for change in self._store.snapshots.audit(NAME, 1_000)
                if change["reason"] != "newer version"
            ],
            versions[-1],
        )

    def _send_and_ask(
        self, processes: Processes, port: int, client: Client, on_progress: Callable[[Progress], None]
    ) -> None:
        failures: list[BaseException] = []

        def send() -> None:
            try:
                rate = min(_RATE, 2 * self.rows / _AT_LEAST_S)
                produce(self._log, self._chunks(client), rate, None, self._sent, SystemClock())
            except BaseException as error:
                failures.append(error)

        producer = threading.Thread(target=send, name="riverrun-produce", daemon=True)
        producer.start()
        processes.wait_ready(f"http://127.0.0.1:{port}/readyz", 120)
        client.start()
        while producer.is_alive():
            self._look(processes, failures, on_progress)
            producer.join(0.2)
        deadline_s = time.monotonic() + 120
        total = self.progress.sent.events
        while self.progress.trained < total:
            self._look(processes, failures, on_progress)
            if time.monotonic() > deadline_s:
                raise RiverrunError(f"the trainer has seen {self.progress.trained:,} of {total:,} events")
            time.sleep(0.1)

    def _chunks(self, client: Client) -> Iterator[FileChunk]:
        for chunk in self._source.chunks():
            client.offer(chunk.events.values)
            yield self._sprinkler.sprinkle(chunk)

    def _sent(self, sent: Sent) -> None:
        self.progress.sent = sent

    def _look(
        self, processes: Processes, failures: list[BaseException], on_progress: Callable[[Progress], None]
    ) -> None:
        processes.check()
        if failures:
            raise failures[0]
        rollout = self._store.snapshots.rollout(NAME)
        if rollout.champion is not None and rollout.champion.version != self.progress.version:
            version = rollout.champion.version
            manifest = self._store.snapshots.load(NAME, version, parts=()).manifest
            self.progress.version = version
            self.progress.trained = manifest["counts"]["events"] + sum(manifest["dead_letters"].values())
            self.progress.accuracy = manifest["metrics"]["accuracy"]
            self.progress.roles = ", ".join(f"{role} {a.lineage}" for role, a in rollout.assigned())
        on_progress(self.progress)

    def _dead_letters(self) -> int:
        lanes = self._log.lanes(f"{self._config.log.prefix}.{DEADLETTER}")
        return sum(following - oldest for oldest, following in map(self._log.bounds, lanes))
