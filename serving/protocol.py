"""The short way: small predictions answered where they are parsed, without a task and a scope for each.

uvicorn's own handling of a request costs about as much as parsing, checking and answering one. So its
protocol is extended, not replaced: a plain POST to a known path with a small body is answered at once;
everything else (other paths, chunked or large bodies, HTTP/1.0, upgrades, pipelining behind another
request, a client that does not read its answers, too many connections) takes uvicorn's way to the ASGI
application, and gets the same answers there. Slow clients are cut off here for both ways while they send
headers, and here for the short way while they send a body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.asgi import CLOSE, PROBLEM, Headers, Wire
from serving.problems import Problem

AnswerNow = Callable[[Headers, bytes], Wire]

MAX_BODY = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024

_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class PredictProtocol(HttpToolsProtocol):
    """One connection. `now` maps paths to what answers them; `patience_s` is how long headers, or a small
    body, may take to arrive."""

    now: ClassVar[Mapping[bytes, AnswerNow]] = {}
    max_body: ClassVar[int] = MAX_BODY
    patience_s: ClassVar[float] = 10.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answer: AnswerNow | None = None
        self._chunks: list[bytes] = []
        self._plain_headers: list[tuple[bytes, bytes]] | None = None  # the last that told of a small body
        self._keep = True
        self._in_headers = True  # also before the first byte: a client that only connects is cut off too
        self._header_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._heard_at = 0.0  # on the loop's clock
        self._dated: list[tuple[bytes, bytes]] | None = None  # the default headers that _ok was made with
        self._ok = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heard_at = self.loop.time()
        self._timer = self.loop.call_later(self.patience_s, self._give_up)
        self._idle = self.loop.call_later(self.timeout_keep_alive, self._close_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._answer = None
        self._stop_timer()
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)
        if not self._in_headers and self._answer is None:
            if self._timer is not None:
                self._stop_timer()
            return
        if self._timer is None:
            self._timer = self.loop.call_later(self.patience_s, self._give_up)
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                self._refuse(
                    Problem(431, "headers-too-large", f"headers of at most {MAX_HEADER_BYTES} bytes")
                )

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        self._in_headers = True
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        answer = self.now.get(self.url)
        if answer is None or not self._is_plain():
            url, headers, expects = self.url, self.headers, self.expect_100_continue
            super().on_message_begin()  # makes the scope, which the short way has no use for
            self.url, self.expect_100_continue = url, expects
            self.headers.extend(headers)
            super().on_headers_complete()
            return
        self._answer = answer
        self._keep = self.parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        if self._answer is None:
            super().on_body(body)
        else:
            self._chunks.append(body)  # no more than content-length says: the parser sees to that

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is None:
            super().on_message_complete()
            return
        self._answer = None
        chunks, self._chunks = self._chunks, []
        transport = self.transport
        if transport.is_closing():
            return
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        status, headers, content, after = answer(self.headers, body)
        if status == 200 and self._keep:
            if self._dated is not self.server_state.default_headers:  # replaced every second
                self._dated = self.server_state.default_headers
                self._ok = self._head(200, headers)
            transport.write(b"%b%d\r\n\r\n%b" % (self._ok, len(content), content))
        else:
            if not self._keep:
                headers = [*headers, CLOSE]
            transport.write(b"%b%d\r\n\r\n%b" % (self._head(status, headers), len(content), content))
        self.server_state.total_requests += 1
        if not self._keep:
            transport.close()
        if after is not None:
            after()

    def shutdown(self) -> None:
        """Draining: a request that has begun is answered, then the connection ends."""
        if self._answer is not None:
            self._keep = False
        else:
            super().shutdown()

    def _is_plain(self) -> bool:
        parser = self.parser
        if (
            parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
            or parser.should_upgrade()
            or self.expect_100_continue
            or self.flow.write_paused
            or (self.cycle is not None and not self.cycle.response_complete)
            or (self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency)
        ):
            return False
        if self.headers == self._plain_headers:  # a client says the same again and again
            return True
        length = None
        for name, value in self.headers:
            if name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                return False
        if length is None or not length.isdigit() or int(length[:20]) > self.max_body:
            return False
        self._plain_headers = self.headers
        return True

    def _head(self, status: int, headers: Headers) -> bytes:
        """All but the length itself, which the content decides."""
        lines = [_STATUS[status]]
        for name, value in (*self.server_state.default_headers, *headers):
            lines += (name, b": ", value, b"\r\n")
        lines.append(b"content-length: ")
        return b"".join(lines)

    # Clients that take their time.

    def _give_up(self) -> None:
        self._timer = None
        self._refuse(Problem(408, "timeout", f"the request took longer than {self.patience_s:g} s to arrive"))

    def _refuse(self, problem: Problem) -> None:
        self._answer = None
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            content = problem.body()
            head = self._head(problem.status, [PROBLEM, CLOSE])
            self.transport.write(b"%b%d\r\n\r\n%b" % (head, len(content), content))
        self.transport.close()

    def _close_idle(self) -> None:
        """One timer that looks back, instead of one a request."""
        left_s = self._heard_at + self.timeout_keep_alive - self.loop.time()
        busy = self._answer is not None or (self.cycle is not None and not self.cycle.response_complete)
        if busy or left_s > 0:
            self._idle = self.loop.call_later(max(left_s, 1.0), self._close_idle)
        elif not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def protocol(now: Mapping[bytes, AnswerNow], max_body: int, patience_s: float) -> type[PredictProtocol]:
    """The protocol for these paths, as uvicorn takes it."""
    settings = {"now": dict(now), "max_body": min(max_body, MAX_BODY), "patience_s": patience_s}
    return type("Protocol", (PredictProtocol,), settings)
