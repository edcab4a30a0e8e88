"""Values of the configuration that make no sense together."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from core.config import Config, ModelConfig
from core.durations import parse_duration_ms

GOOD: dict[str, Any] = {"task": "binary", "events": "e", "features": {"x": "float"}}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"classes": [1, 2, 3]}, "two for a binary task"),
        ({"classes": [1, "a"]}, "of one type"),
        ({"classes": ["a", "a"]}, "different values"),
        ({"task": "regression", "classes": [1, 2]}, "only for binary and multiclass"),
        ({"task": "multiclass", "classes": [1, 2, 3], "max_classes": 2}, "at most max_classes"),
        ({"task": "multiclass", "join": {"on_expiry": "negative"}}, "needs a binary task"),
        ({"task": "regression", "join": {"on_expiry": "negative"}}, "needs a binary task"),
        ({"features": {}}, "at least one feature"),
        ({"features": {"x": "floaty"}}, "features.x"),
        ({"features": "some"}, 'a table of features or "any"'),
        ({"features": "any", "fields": {"features": ""}}, "needs a place of its own"),
        ({"fields": {"id": ""}}, "fields.id"),
        ({"snapshot": {"every": "5 sheep"}}, "a duration such as"),
        ({"window": {"tumbling": "5s"}}, "window.tumbling"),
        ({"rollout": {"canary_share": 0.9}}, "canary_share"),
    ],
)
def test_nonsense_is_told(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told.replace("(", "\\(")):
        ModelConfig.model_validate({**GOOD, **changes})


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "x" * 65, "a\n"])
def test_names_of_models_are_plain(name: str) -> None:
    with pytest.raises(ValidationError, match="a model's name"):
        Config.model_validate({"models": {name: GOOD}})


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250ms", 250), ("5s", 5_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("1.5s", 1_500)],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "5s5", "1e3s", None, True, 1.5, [5]])
def test_no_durations(text: object) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration_ms(text)
