"""Errors as RFC 9457 problem documents: the one table from an error to an HTTP status."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from core.errors import (
    BadRecord,
    LogError,
    LogUnavailable,
    ModelFailed,
    NotReady,
    RiverrunError,
    StoreError,
    StoreUnavailable,
    UnknownModel,
    UnknownTopic,
)

_TITLES = {
    400: "Bad request",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    413: "Content too large",
    415: "Unsupported media type",
    431: "Request header fields too large",
    422: "Unprocessable content",
    500: "Internal error",
    502: "The log refused the records",
    503: "Service unavailable",
}

# The first row that fits wins. `code` becomes the problem's type.
_TABLE: tuple[tuple[type[RiverrunError], int, str], ...] = (
    (UnknownModel, 404, "unknown-model"),
    (NotReady, 503, "not-ready"),
    (ModelFailed, 503, "model-failed"),
    (LogUnavailable, 503, "log-unavailable"),
    (UnknownTopic, 503, "no-topic"),
    (LogError, 502, "log-refused"),
    (StoreUnavailable, 503, "store-unavailable"),
    (StoreError, 503, "store-failed"),
)

# Not JSON at all: 400. JSON that says something impossible: 422.
_RECORD_STATUS = {"malformed": 400, "not_utf8": 400, "too_deep": 400, "too_large": 413}

_AT = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]*)`")
_NAMED = re.compile(r"^(?P<path>[^\s:]+): ")


class Problem(Exception):  # RFC 9457's word
    """An answer that is an error. Raised by handlers where no error of the tree says it. `reason` is a
    refused record's, from its closed set; `field` is the path of what is wrong."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        reason: str | None = None,
        field: str | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.reason = reason
        self.field = field
        self.headers = headers
        super().__init__(f"{status} {code}: {detail}")

    def body(self) -> bytes:
        """The problem document."""
        document: dict[str, Any] = {
            "type": f"urn:riverrun:problem:{self.code}",
            "title": _TITLES[self.status],
            "status": self.status,
            "detail": self.detail,
        }
        if self.reason is not None:
            document["reason"] = self.reason
        if self.field is not None:
            document["field"] = self.field
        return msgspec.json.encode(document)


def problem_of(error: Exception) -> Problem:
    """The answer that an error stands for. What is not of our tree is a fault of ours: 500, without
    telling what it was."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, BadRecord):
        status = _RECORD_STATUS.get(error.reason, 422)
        return Problem(status, "bad-record", error.detail, reason=error.reason, field=field_of(error.detail))
    for kind, status, code in _TABLE:
        if isinstance(error, kind):
            headers = ((b"retry-after", b"1"),) if status == 503 else ()
            return Problem(status, code, str(error), headers=headers)
    return Problem(500, "internal", "something failed here; the server's log has more")


def field_of(detail: str) -> str | None:
    """The path of the field that a refusal speaks of, where its text names one."""
    at = _AT.search(detail)
    path = "" if at is None else at["path"]
    missing = _MISSING.match(detail)
    if missing is not None:
        return f"{path}.{missing['name']}" if path else missing["name"]
    if path:
        return path
    named = _NAMED.match(detail)
    return None if named is None else named["path"]


def within(where: str, error: BadRecord) -> BadRecord:
    """The same refusal, its field's path below `where`."""
    return BadRecord(error.reason, f"{where}.{error.detail}")
