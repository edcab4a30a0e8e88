"""Durations as people write them: "250ms", "5s", "1h30m", "7d"."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration_ms(text: object) -> int:
    """Milliseconds of a duration such as "5s". Raises ValueError where it is none."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if not isinstance(text, str) or not re.fullmatch(rf"(?:{_PART.pattern})+", text):
        raise ValueError(f'a duration such as "250ms", "5s", "1h30m" or "7d", not {text!r}')
    return round(sum(float(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text)))


# A configuration value: written as text, held as milliseconds.
DurationMs = Annotated[int, BeforeValidator(parse_duration_ms)]
