"""POST /v1/models/{model}/events and /v1/models/{model}/labels."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor

import msgspec

from core.errors import NotReady
from core.plain import State
from serving.asgi import RETRY, BodyReader, Receive, Reply, Route, Scope, check_content_type, content_length
from serving.intake import Append, Intake
from serving.interface import Interface
from serving.loading import interface_of
from serving.metrics import ServingMetrics
from serving.model_cache import ModelCache
from serving.problems import Problem

_MAX_WRITES = 256  # requests waiting for the log at once


class WriteRoute:
    """Writes records to the log, all of a request or none, and answers 202 once the log has them."""

    def __init__(
        self,
        cache: ModelCache,
        append: Append,
        metrics: ServingMetrics,
        bodies: BodyReader,
        pool: Executor,
        contracts: Mapping[str, State],
    ) -> None:
        self._cache = cache
        self._append = append
        self._metrics = metrics
        self._read = bodies.read
        self._pool = pool
        self._contracts = contracts
        self._interfaces: dict[str, Interface] = {}
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
        intake = self._intake(route.model, kind)
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

    def _intake(self, model: str, kind: str) -> Intake:
        manifest, interface = self._contract(model)
        if kind == "labels" and manifest["labels"] is None:
            raise Problem(
                404, "no-labels-topic", f"{model!r} takes its label with the event: send it to /events"
            )
        known = self._intakes.get((model, kind))
        if known is None or not known.fits(manifest, interface):
            known = self._intakes[model, kind] = Intake(manifest, interface, events=kind == "events")
        return known

    def _contract(self, model: str) -> tuple[State, Interface]:
        """What the model takes: as its champion's manifest says, or the configuration while there is none:
        somebody must be able to send the events that the first version learns from."""
        try:
            served = self._cache.get(model)
        except NotReady:
            manifest = self._contracts.get(model)
            if manifest is None:
                raise
            if model not in self._interfaces:
                self._interfaces[model] = interface_of(manifest)
            return manifest, self._interfaces[model]
        return served.champion.manifest, served.interface
