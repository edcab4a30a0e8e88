"""One tree of errors. Transports translate it (HTTP statuses and exit codes live at the edges)."""

from __future__ import annotations

from typing import Literal, get_args

# Why a record was refused: the closed set of codes in dead letters, metrics and HTTP answers.
Reason = Literal[
    "malformed",  # not JSON, or not an object
    "not_utf8",
    "too_large",
    "too_deep",
    "missing_field",
    "wrong_type",
    "number_out_of_range",
    "inexact_number",
    "category_too_long",
    "bad_id",
    "bad_timestamp",
    "unknown_class",
    "class_limit",
]
REASONS: tuple[str, ...] = get_args(Reason)


class RiverrunError(Exception):
    """Base of all errors that riverrun raises on purpose. The message says what, which and value."""

    retriable = False


class ConfigError(RiverrunError):
    """A configuration, an argument or a sample file that cannot be used; lists every problem found."""

    def __init__(self, problems: list[str] | str) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class LogError(RiverrunError):
    """The log refused or failed."""


class LogUnavailable(LogError):
    """The log cannot be reached right now; the same call may succeed later."""

    retriable = True


class UnknownTopic(LogError):
    """A topic that the log does not have."""


class OffsetOutOfRange(LogError):
    """An offset below what the log still keeps, or above what it has."""


class StoreError(RiverrunError):
    """The snapshot store refused or failed."""


class StoreUnavailable(StoreError):
    """The store cannot be reached right now, or cannot take writes; the same call may succeed later."""

    retriable = True


class StaleEpoch(StoreError):
    """A write by an owner that has been replaced: another trainer owns the model now."""


class Conflict(StoreError):
    """A compare-and-set lost: somebody else changed the value first."""


class UnknownModel(RiverrunError):
    """A model that the store or the configuration does not have."""


class UnknownVersion(StoreError):
    """A version that was never published, or is no longer kept."""


class CorruptSnapshot(StoreError):
    """A snapshot whose bytes do not match their digest, or that cannot be decoded."""


class NotReady(RiverrunError):
    """Nothing to answer with yet."""

    retriable = True


class ModelFailed(RiverrunError):
    """A model raised, or answered with a number that is not finite."""

    retriable = True


class BadRecord(RiverrunError):
    """One record that cannot be used. `reason` is a code from a closed set, `detail` is for people."""

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason: Reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")
