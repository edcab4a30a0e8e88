"""What a model takes and answers, as plain data: what its clients and its predictors must agree on."""

from __future__ import annotations

from typing import Any

from core.config import ModelConfig


def contract(config: ModelConfig) -> dict[str, Any]:
    """Task, schema, classes known beforehand, limits, topics and where fields sit in their records. Every
    manifest starts with it; a predictor without a version yet takes it from the configuration."""
    schema = config.schema_()
    return {
        "task": config.task,
        "schema": schema.state(),
        "schema_digest": schema.digest(),
        "classes": config.class_values() or [],
        "limits": config.limits.model_dump(),
        "events": config.events,
        "labels": config.labels,
        "fields": config.fields.model_dump(),
        "label_fields": config.label_fields.model_dump(),
    }
