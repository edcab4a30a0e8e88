"""The configuration as typed values. Read only in `cli/`; everything below gets the part it needs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from core.durations import DurationMs
from core.errors import ConfigError
from core.schema import Schema, Task, parse_schema

LabelValue = bool | int | str


class Section(BaseModel):
    """One table of the file: unknown keys refused, values frozen once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class LogConfig(Section):
    """Where records flow. `options` go to the client library as they are."""

    url: str = "embedded://"
    options: dict[str, str | int | float | bool] = {}
    prefix: str = "riverrun"  # of the topics the product writes


class StoreConfig(Section):
    """Where snapshots lie."""

    url: str = "embedded://"


class FieldsConfig(Section):
    """Where fields sit in a record, as dotted paths. `features = ""`: the record itself."""

    id: str = "id"
    ts: str = "ts"
    features: str = "features"
    label: str = "label"


class LabelFieldsConfig(Section):
    """Where fields sit in a record of the labels topic."""

    id: str = "id"
    ts: str = "ts"
    label: str = "label"


class FileConfig(Section):
    """Which columns of a CSV, JSON Lines or Parquet file become events and labels."""

    id: str | None = None  # None: the row number
    ts: str | None = None  # None: the row number, in milliseconds
    label: str | None = None  # None: the model's label
    label_ts: str | None = None  # None: the label is known with the event; an empty cell: never


class WindowConfig(Section):
    """How many examples make a mini-batch. 1: each is learned at once."""

    count: int = Field(default=256, ge=1, le=1_000_000)


class JoinConfig(Section):
    """How long events and labels wait for each other, by record time and by number."""

    expire_after: DurationMs = 7 * 86_400_000
    capacity: int = Field(default=1_000_000, ge=1)  # events waiting; then labels waiting
    remember: int = Field(default=20_000, ge=0)  # ids of finished events, to know duplicates by
    on_expiry: Literal["drop", "negative"] = "drop"
    max_ahead: DurationMs = 3_600_000  # a record dated later than now plus this cannot move time on


class LimitsConfig(Section):
    """What a record may be before it is refused."""

    max_bytes: int = Field(default=1_000_000, ge=1)
    max_depth: int = Field(default=32, ge=1, le=256)
    max_abs_value: float = Field(default=1e30, gt=0)
    max_category_chars: int = Field(default=256, ge=1)


class LearnerConfig(BaseModel):
    """Which learner, and the settings that its kind defines (checked by that kind)."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    kind: str = "linear"

    def settings(self) -> dict[str, Any]:
        """Everything but the kind."""
        return dict(self.model_extra or {})


class DriftConfig(Section):
    """What watches the loss, and what happens at an alarm."""

    detectors: list[str | dict[str, dict[str, float | int | bool]]] = ["adwin"]
    on_drift: Literal["challenger", "alert", "reset", "consolidate"] = "challenger"
    cooldown: int = Field(default=1_000, ge=0)  # examples between two alarms that are acted on


class ReplayConfig(Section):
    """What is kept of the past."""

    policy: Literal["reservoir", "balanced", "recent", "prioritized"] = "reservoir"
    capacity: int = Field(default=10_000, ge=0)


class SnapshotConfig(Section):
    """How often a version is published, and how many are kept beside those in a role."""

    every: DurationMs = 5_000
    keep: int = Field(default=20, ge=1)


class RolloutConfig(Section):
    """What a challenger must show before it serves."""

    canary_share: float = Field(default=0.1, gt=0, le=0.5)
    alpha: float = Field(default=0.05, gt=0, lt=1)  # chance that a challenger no better is promoted
    min_gain: float = Field(default=0.0, ge=0)  # in loss, proven
    min_examples: int = Field(default=1_000, ge=1)  # before a challenger is eligible
    canary_examples: int = Field(default=2_000, ge=1)  # as canary, before it may be champion
    max_age: int = Field(default=200_000, ge=1)  # examples; a challenger that proved nothing is dropped
    max_challengers: int = Field(default=1, ge=1, le=8)


class ModelConfig(Section):
    """Everything about one model."""

    task: Task
    events: str
    labels: str | None = None
    label: str = "label"
    classes: list[LabelValue] | None = None
    max_classes: int = Field(default=100, ge=2, le=10_000)
    seed: int = Field(default=0, ge=0)
    predictions: bool = False  # write every prediction to the predictions topic
    features: dict[str, str] | str
    fields: FieldsConfig = FieldsConfig()
    label_fields: LabelFieldsConfig = LabelFieldsConfig()
    file: FileConfig = FileConfig()
    window: WindowConfig = WindowConfig()
    join: JoinConfig = JoinConfig()
    limits: LimitsConfig = LimitsConfig()
    learner: LearnerConfig = LearnerConfig()
    drift: DriftConfig = DriftConfig()
    replay: ReplayConfig = ReplayConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    rollout: RolloutConfig = RolloutConfig()

    @field_validator("features")
    @classmethod
    def _features(cls, value: dict[str, str] | str) -> dict[str, str] | str:
        try:
            parse_schema(value)
        except ConfigError as error:
            raise ValueError("; ".join(error.problems)) from None
        return value

    @model_validator(mode="after")
    def _classes(self) -> ModelConfig:
        classes = self.classes
        if classes is None:
            return self
        if self.task == "regression":
            raise ValueError("classes: only for binary and multiclass tasks")
        if len({type(c) for c in classes}) > 1 or len(set(classes)) != len(classes):
            raise ValueError("classes: different values of one type")
        if self.task == "binary" and len(classes) != 2:
            raise ValueError(f"classes: two for a binary task, the positive one last; {len(classes)} given")
        if len(classes) > self.max_classes:
            raise ValueError(f"classes: at most max_classes = {self.max_classes}")
        return self

    @model_validator(mode="after")
    def _expiry(self) -> ModelConfig:
        if self.join.on_expiry == "negative" and self.task != "binary":
            raise ValueError(f'join.on_expiry: "negative" needs a binary task, not {self.task}')
        return self

    @model_validator(mode="after")
    def _paths(self) -> ModelConfig:
        if self.features == "any" and not self.fields.features:
            raise ValueError("fields.features: an open feature map needs a place of its own in the record")
        for section, at in (("fields", self.fields), ("label_fields", self.label_fields)):
            for name in ("id", "ts", "label"):
                if not getattr(at, name):
                    raise ValueError(f"{section}.{name}: a path, not an empty text")
        return self

    def schema_(self) -> Schema:
        """The typed schema of `features`."""
        return parse_schema(self.features)

    def class_values(self) -> list[LabelValue] | None:
        """The classes known beforehand, in code order; None where they are learned from the labels."""
        if self.task == "regression":
            return None
        if self.classes is None:
            return [False, True] if self.task == "binary" else None
        return list(self.classes)


class ServingConfig(Section):
    """Where the predictor listens."""

    host: str = "127.0.0.1"
    port: int = Field(default=8400, ge=0, le=65535)
    max_body_bytes: int = Field(default=1_000_000, ge=1)
    admin_token_file: str | None = None


class TrainerConfig(Section):
    """How a trainer process reads and reports."""

    max_turn_records: int = Field(default=4_096, ge=1, le=1_000_000)  # a lane, a turn
    poll: DurationMs = 200
    metrics_host: str = "127.0.0.1"
    metrics_port: int = Field(default=8401, ge=0, le=65535)
    lease: DurationMs = 5_000


class Config(Section):
    """The whole file."""

    log: LogConfig = LogConfig()
    store: StoreConfig = StoreConfig()
    serving: ServingConfig = ServingConfig()
    trainer: TrainerConfig = TrainerConfig()
    models: dict[str, ModelConfig] = {}

    @field_validator("models")
    @classmethod
    def _names(cls, value: dict[str, ModelConfig]) -> dict[str, ModelConfig]:
        for name in value:
            if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum() or len(name) > 64:
                raise ValueError(f"a model's name is 1 to 64 of A-Z a-z 0-9 _ -, not {name!r}")
        return value
