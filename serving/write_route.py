"""POST /v1/models/{model}/events and /v1/models/{model}/labels."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

import msgspec

from serving.asgi import RETRY, BodyReader, Receive, Reply, Route, Scope, check_content_type, content_length
from serving.intake import Append, Intake
from serving.loading import Served
from serving.metrics import ServingMetrics
from serving.model_cache import ModelCache
from serving.problems import Problem

_MAX_WRITES = 256  # requests waiting for the log at once


class WriteRoute:
    """Writes records to the log, all of a request or none, and answers 202 once the log has them."""

    def __init__(
        self, cache: ModelCache, append: Append, metrics: ServingMetrics, bodies: BodyReader, pool: Executor
    ) -> None:
        self._cache = cache
        self._append = append
        self._metrics = metrics
        self._read = bodies.read
        self._pool = pool
        self._encode = msgspec.json.Encoder().encode
        self._intakes: dict[tuple[str, str], Intake] = {}
        self._writing = 0

    async def __call__(self, route: Route, scope: Scope, receive: Receive) -> Reply:
        headers = scope["headers"]
        for name, value in headers:
            if name == b"content-type":
                check_content_type(value)
        body = await self._read(content_length(headers), receive)
        kind = route.kind
        intake = self._intake(self._cache.get(route.model), kind)
        records = intake.read(body)
        if self._writing >= _MAX_WRITES:
            raise Problem(503, "busy", "too many requests wait for the log", headers=(RETRY,))
        self._writing += 1
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._pool, self._append, intake.topic, records)
        finally:
            self._writing -= 1
        self._metrics.records[route.model, kind] += len(records)
        return Reply(self._encode({"accepted": len(records)}), 202)

    def _intake(self, served: Served, kind: str) -> Intake:
        manifest = served.champion.manifest
        if kind == "labels" and manifest["labels"] is None:
            raise Problem(
                404, "no-labels-topic", f"{served.model!r} takes its label with the event: send it to /events"
            )
        known = self._intakes.get((served.model, kind))
        if known is None or not known.fits(manifest, served.interface):
            known = self._intakes[served.model, kind] = Intake(
                manifest, served.interface, events=kind == "events"
            )
        return known
