"""The predictor over HTTP: a bare ASGI application. Bodies are read, and answers made, by the routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from core.clock import Clock
from core.errors import BadRecord, NotReady, StoreError, UnknownModel
from core.plain import State
from serving import describe
from serving.asgi import (
    CLOSE,
    PROBLEM,
    BodyReader,
    Disconnected,
    Handler,
    Headers,
    Receive,
    Reply,
    Route,
    Scope,
    Send,
    Wire,
    reply,
    reply_and_drain,
)
from serving.intake import Append
from serving.metrics import ServingMetrics
from serving.model_cache import ModelCache
from serving.predict_route import PredictRoute
from serving.predictor import Predictor
from serving.problems import Problem, problem_of
from serving.write_route import WriteRoute
from snapshots.store import SnapshotStore

_log = logging.getLogger("riverrun.serving")


class HttpApp:
    """The ASGI application. One event loop runs it; blocking work goes to a few threads."""

    def __init__(
        self,
        cache: ModelCache,
        predictor: Predictor,
        store: SnapshotStore,
        append: Append,
        metrics: ServingMetrics,
        registry: CollectorRegistry,
        clock: Clock,
        *,
        max_body_bytes: int = 1_000_000,
        body_timeout_s: float = 10.0,
        contracts: Mapping[str, State] | None = None,
    ) -> None:
        self._cache, self._store = cache, store
        self._metrics, self._registry, self._clock = metrics, registry, clock
        self._encode = msgspec.json.Encoder().encode
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="riverrun-http")
        bodies = BodyReader(max_body_bytes, body_timeout_s)
        self._predict = PredictRoute(cache, predictor, bodies, self._pool)
        self._write = WriteRoute(cache, append, metrics, bodies, self._pool, contracts or {})
        self._routes = self._all_routes()

    def _all_routes(self) -> dict[str, Route]:
        def read(handler: Handler) -> dict[str, Handler]:
            return {"GET": handler, "HEAD": handler}

        routes = {
            "/healthz": Route("/healthz", read(self._health)),
            "/readyz": Route("/readyz", read(self._ready)),
            "/metrics": Route("/metrics", read(self._export)),
            "/v1/models": Route("/v1/models", read(self._models)),
        }
        for model in self._cache.models:
            at, template = f"/v1/models/{model}", "/v1/models/{model}"
            routes[at] = Route(template, read(self._model), model)
            routes[f"{at}/predict"] = Route(f"{template}/predict", {"POST": self._predict}, model)
            for kind in ("events", "labels"):
                routes[f"{at}/{kind}"] = Route(f"{template}/{kind}", {"POST": self._write}, model)
        return routes

    def close(self) -> None:
        """Ends the threads, once what they write is written."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        route = self._routes.get(scope["path"])
        try:
            if route is None:
                route = _LOST
                raise self._lost(scope["path"])
            handler = route.handlers.get(scope["method"])
            if handler is None:
                allow = ", ".join(route.handlers)
                raise Problem(
                    405,
                    "method-not-allowed",
                    f"this path answers {allow}",
                    headers=((b"allow", allow.encode()),),
                )
            made = await handler(route, scope, receive)
        except Disconnected:
            return
        except Exception as error:
            status, headers, body = self._refuse(error, route or _LOST)
            if CLOSE in headers:
                await reply_and_drain(send, receive, status, body, headers)
            else:
                await reply(send, status, body, headers)
            return
        self._metrics.requests[route.template, str(made.status)] += 1
        await reply(send, made.status, made.body, (made.content_type,))
        if made.after is not None:
            made.after()

    def paths_now(self) -> dict[bytes, Callable[[Headers, bytes], Wire]]:
        """The paths that can be answered without waiting for anything, each with what answers it."""
        return {
            path.encode(): partial(self._predict_now, route)
            for path, route in self._routes.items()
            if route.kind == "predict"
        }

    def _predict_now(self, route: Route, headers: Headers, body: bytes) -> Wire:
        try:
            made = self._predict.answer(route.model, headers, body)
        except Exception as error:
            return (*self._refuse(error, route), None)
        self._metrics.requests[route.template, "200"] += 1
        return made.status, (made.content_type,), made.body, made.after

    def _refuse(self, error: Exception, route: Route) -> tuple[int, Headers, bytes]:
        """An error as an answer, counted."""
        problem = problem_of(error)
        if problem.status == 500:
            _log.error("%s failed", route.template, exc_info=error)
        if isinstance(error, BadRecord) and route.model:
            self._metrics.refusals[route.model, route.kind, error.reason] += 1
        self._metrics.requests[route.template, str(problem.status)] += 1
        return problem.status, [PROBLEM, *problem.headers], problem.body()

    def _lost(self, path: str) -> Exception:
        parts = path.split("/")
        if parts[:3] == ["", "v1", "models"] and len(parts) in (4, 5) and parts[3] not in self._cache.models:
            return UnknownModel(f"no model {parts[3][:64]!r} here")
        return Problem(404, "no-such-path", "nothing is at this path")

    # GET /v1/models, /v1/models/{model}

    async def _models(self, _route: Route, _scope: Scope, _receive: Receive) -> Reply:
        served, waiting, now_ms = self._cache.served(), self._cache.waiting(), self._clock.now_ms()
        rows = [
            describe.summary(model, served.get(model), waiting.get(model), now_ms)
            for model in self._cache.models
        ]
        return Reply(self._encode({"models": rows}))

    async def _model(self, route: Route, _scope: Scope, _receive: Receive) -> Reply:
        served = self._cache.get(route.model)
        loop = asyncio.get_running_loop()
        try:
            versions = await loop.run_in_executor(self._pool, self._store.versions, route.model)
        except StoreError as error:
            _log.warning("%s: the versions kept cannot be listed: %s", route.model, error)
            versions = None
        return Reply(self._encode(describe.details(served, versions, self._clock.now_ms())))

    # GET /healthz, /readyz, /metrics

    async def _health(self, _route: Route, _scope: Scope, _receive: Receive) -> Reply:
        return Reply(b'{"alive":true}')

    async def _ready(self, _route: Route, _scope: Scope, _receive: Receive) -> Reply:
        waiting = self._cache.waiting()
        if waiting:
            reasons = "; ".join(f"{model}: {reason}" for model, reason in waiting.items())
            raise NotReady(f"not every model can answer: {reasons}")
        return Reply(b'{"ready":true}')

    async def _export(self, _route: Route, _scope: Scope, _receive: Receive) -> Reply:
        text = generate_latest(self._registry)
        return Reply(text, content_type=(b"content-type", CONTENT_TYPE_LATEST.encode()))


_LOST = Route("other", {})
