"""The little of ASGI that the predictor needs: bodies with a limit and a deadline, replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from serving.problems import Problem

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = (b"content-type", b"application/json")
PROBLEM = (b"content-type", b"application/problem+json")
CLOSE = (b"connection", b"close")
RETRY = (b"retry-after", b"1")

_DRAIN_BYTES, _DRAIN_S = 16_000_000, 2.0


Headers = Sequence[tuple[bytes, bytes]]
Wire = tuple[int, Headers, bytes, Callable[[], None] | None]  # status, headers, body, what to do after it
Handler = Callable[["Route", Scope, Receive], Awaitable["Reply"]]


@dataclass(slots=True)
class Reply:
    """What a handler answers. `after` is called once it has been sent."""

    body: bytes
    status: int = 200
    content_type: tuple[bytes, bytes] = JSON
    after: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A path that exists, for one model or for none. `template` is what metrics call it."""

    template: str
    handlers: Mapping[str, Handler]  # by method
    model: str = ""

    @property
    def kind(self) -> str:
        """The last word of the path."""
        return self.template.rsplit("/", 1)[1]


class Disconnected(Exception):  # an event, not a fault
    """The client went away before its request was complete."""


class BodyReader:
    """Reads whole request bodies, none longer than `max_bytes`, none slower than `timeout_s`."""

    def __init__(self, max_bytes: int, timeout_s: float) -> None:
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        # A timer for each request costs more than all its parsing: one task looks after all of them.
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    async def read(self, length: bytes | None, receive: Receive) -> bytes:
        """The body. `length` is the content-length header. Raises Problem 413 as soon as it is known to be
        too long, 408 when the time is over; Disconnected."""
        if length is not None and (not length.isdigit() or int(length[:20]) > self._max_bytes):
            raise self._too_large()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a body is read outside a task")
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        self._reading[task] = time.monotonic() + self._timeout_s
        try:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            body: bytes = message["body"]
            if not message.get("more_body") and len(body) <= self._max_bytes:
                return body
            return await self._rest(body, message, receive)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            task.uncancel()
            raise Problem(
                408, "timeout", f"the body took longer than {self._timeout_s:g} s", headers=(CLOSE,)
            ) from None
        finally:
            del self._reading[task]
            self._late.discard(task)

    async def _rest(self, body: bytes, message: MutableMapping[str, Any], receive: Receive) -> bytes:
        chunks, size = [body], len(body)
        while size <= self._max_bytes:
            if not message.get("more_body"):
                return b"".join(chunks)
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunks.append(message["body"])
            size += len(message["body"])
        raise self._too_large()

    def _too_large(self) -> Problem:
        return Problem(413, "too-large", f"a body of at most {self._max_bytes} bytes", headers=(CLOSE,))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._timeout_s / 2))
            now = time.monotonic()
            for task in [task for task, deadline in self._reading.items() if deadline < now]:
                self._late.add(task)
                task.cancel()


async def reply(
    send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (JSON,)
) -> None:
    """Sends one whole answer."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def reply_and_drain(
    send: Send, receive: Receive, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> None:
    """Sends an answer to a request that is still arriving, and throws away what comes after it, within
    bounds: closing at once would make the client's machine throw away the answer."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": True})
    left = _DRAIN_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while left > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    break
                left -= len(message["body"])
    await send({"type": "http.response.body", "body": b""})


def check_content_type(value: bytes) -> None:
    """Raises Problem 415 for what is not JSON. Without the header, JSON is taken for granted."""
    if value == b"application/json":
        return
    if value.split(b";", 1)[0].strip().lower() not in (b"application/json", b""):
        raise Problem(415, "not-json", "content-type: application/json")


def content_length(headers: Headers) -> bytes | None:
    """The header as it came; None where there is none."""
    for name, value in headers:
        if name == b"content-length":
            return value
    return None
