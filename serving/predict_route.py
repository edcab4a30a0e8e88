"""POST /v1/models/{model}/predict."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import lru_cache, partial
from time import perf_counter
from typing import Any

import msgspec

from core.durations import parse_duration_ms
from serving.asgi import (
    JSON,
    RETRY,
    BodyReader,
    Headers,
    Receive,
    Reply,
    Route,
    Scope,
    check_content_type,
    content_length,
)
from serving.loading import Loaded
from serving.model_cache import ModelCache
from serving.predictor import Predictor, label_of
from serving.problems import Problem

BIG = 64 * 1024  # bytes of a body


class _Label(msgspec.Struct):
    id: str
    label: Any
    probabilities: dict[str, float]


class _Value(msgspec.Struct):
    id: str
    value: float


class _Body(msgspec.Struct):
    model: str
    version: int
    role: str
    trained_through: str | None
    staleness_s: float
    predictions: list[_Label | _Value]


class PredictRoute:
    """Answers `{"id", "features"}` or `{"instances": [...]}` with one version: a request of several
    instances goes as a whole where its first id is routed."""

    def __init__(self, cache: ModelCache, predictor: Predictor, bodies: BodyReader, pool: Executor) -> None:
        self._cache = cache
        self._predictor = predictor
        self._read = bodies.read
        self._pool = pool
        self._encode = msgspec.json.Encoder().encode

    async def __call__(self, route: Route, scope: Scope, receive: Receive) -> Reply:
        headers = scope["headers"]
        body = await self._read(content_length(headers), receive)
        return (
            await self._beside(route.model, headers, body)
            if len(body) > BIG
            else self.answer(route.model, headers, body)
        )

    async def _beside(self, model: str, headers: Headers, body: bytes) -> Reply:
        """Large requests are answered beside the event loop, so that others are answered meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.answer, model, headers, body)

    def answer(self, model: str, headers: Headers, body: bytes) -> Reply:
        """The whole answer to a request that has been read. Changes nothing; safe from any thread. Raises
        UnknownModel, NotReady, BadRecord, ModelFailed, Problem."""
        started = perf_counter()
        max_staleness = None
        for name, value in headers:
            if name == b"content-type":
                check_content_type(value)
            elif name == b"riverrun-max-staleness":
                max_staleness = value
        served = self._cache.get(model)
        ids, X, cells = served.interface.read(body)
        answer = self._predictor.predict(served, ids, X, cells)
        loaded = answer.loaded
        staleness_s = self._predictor.staleness_s(loaded)
        if max_staleness is not None:
            _check_staleness(max_staleness, staleness_s, loaded)
        # As many rows as ids, and as many scores as names: the predictor has seen to that.
        predictions: list[_Label | _Value] = []
        names = loaded.names if loaded.task != "regression" else None
        for id_, row in zip(ids, answer.rows):  # noqa: B905
            if names is None:
                predictions.append(_Value(id_, row[0]))
            else:
                predictions.append(_Label(id_, label_of(loaded, row), dict(zip(names, row))))  # noqa: B905
        made = self._encode(
            _Body(model, loaded.version, answer.role, loaded.trained_through, staleness_s, predictions)
        )
        return Reply(made, 200, JSON, partial(self._predictor.done, answer, perf_counter() - started))


def _check_staleness(header: bytes, staleness_s: float, loaded: Loaded) -> None:
    limit_ms = _max_staleness_ms(header)
    if limit_ms is None:
        raise Problem(
            400,
            "bad-header",
            'riverrun-max-staleness: a duration such as "30s" or "500ms"',
            field="riverrun-max-staleness",
        )
    if staleness_s * 1000 > limit_ms:
        raise Problem(
            503,
            "too-stale",
            f"version {loaded.version} is {staleness_s:.3f} s old, asked for at most {limit_ms / 1000:g} s",
            headers=(RETRY,),
        )


@lru_cache(maxsize=64)
def _max_staleness_ms(header: bytes) -> int | None:
    try:
        return parse_duration_ms(header.decode("latin-1"))
    except ValueError:
        return None
