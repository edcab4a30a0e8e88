"""A predictor as a server: wires cache, data plane and HTTP together, and runs them until told to stop."""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FrameType

import uvicorn
from prometheus_client import CollectorRegistry

from core.clock import Clock, SystemClock
from core.errors import ConfigError
from core.plain import State
from learners.registry import build
from serving.http import HttpApp
from serving.intake import Append
from serving.loading import Build
from serving.metrics import ServingMetrics
from serving.mirror import Mirror
from serving.model_cache import ModelCache
from serving.predictor import Predictor
from serving.protocol import protocol
from snapshots.store import SnapshotStore

_log = logging.getLogger("riverrun.serving")


class PredictionServer:
    """One worker. `run` blocks; `stop` may be called from anywhere."""

    def __init__(
        self,
        store: SnapshotStore,
        models: Sequence[str],
        append: Append,
        *,
        host: str = "127.0.0.1",
        port: int = 8400,
        max_body_bytes: int = 1_000_000,
        body_timeout_s: float = 10.0,
        drain_s: int = 10,
        max_connections: int = 2_000,
        keep_alive_s: int = 30,
        jitter_s: float = 0.05,
        registry: CollectorRegistry | None = None,
        clock: Clock | None = None,
        build_learner: Build = build,
        factories: Collection[str] = (),
        contracts: Mapping[str, State] | None = None,
    ) -> None:
        clock = clock or SystemClock()
        registry = registry if registry is not None else CollectorRegistry()
        metrics = ServingMetrics()
        metrics.register(registry)
        self.cache = ModelCache(
            store,
            models,
            metrics,
            clock=clock,
            jitter_s=jitter_s,
            build_learner=build_learner,
            factories=factories,
        )
        self._mirror = Mirror(metrics)
        self._app = HttpApp(
            self.cache,
            Predictor(metrics, clock, self._mirror),
            store,
            append,
            metrics,
            registry,
            clock,
            max_body_bytes=max_body_bytes,
            body_timeout_s=body_timeout_s,
            contracts=contracts,
        )
        self._server = _Server(
            uvicorn.Config(
                self._app,
                host=host,
                port=port,
                loop="uvloop",
                http=protocol(self._app.paths_now(), max_body_bytes, body_timeout_s),
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=max_connections,
                timeout_keep_alive=keep_alive_s,
                timeout_graceful_shutdown=drain_s,
            )
        )

    def run(self, on_listening: Callable[[str, int], None] | None = None) -> int | None:
        """Serves until `stop`, SIGTERM or SIGINT: then takes no new connections, answers what has begun
        (for at most `drain_s`), and returns which signal it was, None where it was `stop`. `on_listening`
        gets the address once connections are taken; models load meanwhile, `/readyz` tells. Raises
        ConfigError where the address cannot be had. The store, and whatever `append` writes to, stay open:
        their owner closes them."""
        self._server.on_listening = on_listening
        self._mirror.start()
        self.cache.start()
        try:
            self._server.run()
        except SystemExit:  # uvicorn's way to say that it cannot listen; the reason is logged
            config = self._server.config
            raise ConfigError(f"serving: cannot listen on {config.host}:{config.port}") from None
        finally:
            self.cache.close()
            self._mirror.close()
            self._app.close()
        return self._server.ended_by

    def stop(self) -> None:
        """Asks `run` to drain and return."""
        self._server.should_exit = True


def run_server(
    store: SnapshotStore,
    models: Sequence[str],
    append: Append,
    *,
    host: str = "127.0.0.1",
    port: int = 8400,
    max_body_bytes: int = 1_000_000,
    factories: Collection[str] = (),
    contracts: Mapping[str, State] | None = None,
    registry: CollectorRegistry | None = None,
    on_listening: Callable[[str, int], None] | None = None,
) -> int | None:
    """Runs a predictor in this thread until SIGTERM or SIGINT, and returns which it was. `factories`: the
    learner kinds "module:function" that snapshots may ask for, from the configuration. `contracts`: what
    each model takes (see `core.contract`), for events and labels that come before its first version."""
    server = PredictionServer(
        store,
        models,
        append,
        host=host,
        port=port,
        max_body_bytes=max_body_bytes,
        factories=factories,
        contracts=contracts,
        registry=registry,
    )
    return server.run(on_listening)


class _Server(uvicorn.Server):
    on_listening: Callable[[str, int], None] | None = None
    ended_by: int | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.ended_by = self.ended_by or sig
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets=sockets)  # type: ignore[arg-type]
        # What exists by now lives as long as the process: no collection needs to walk it again.
        gc.collect()
        gc.freeze()
        if self.on_listening is not None and self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self.on_listening(host, port)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals ask for draining and are spent by that: uvicorn would raise them again after it, and
        end the process before its owner could tidy up."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
