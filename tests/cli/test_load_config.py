"""Configuration: everything wrong is told at once, with its path; the environment goes over the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.env_overlay import parse_value
from cli.load_config import load_config, pick_model
from core.config import Config, ModelConfig
from core.errors import ConfigError, UnknownModel

GOOD = """
[log]
url = "kafka://localhost:9092"
[log.options]
"security.protocol" = "SASL_SSL"
[models.flights]
task = "binary"
events = "e"
[models.flights.features]
distance = "float"
Carrier-Name = "category"
[models.other-one]
task = "regression"
events = "o"
features = "any"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "riverrun.toml"
    path.write_text(text)
    return path


def problems(path: Path | None, environ: dict[str, str] | None = None, **options: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ or {}, **options)
    return caught.value.problems


def test_a_file_and_the_environment_over_it(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    config = load_config(
        path,
        {
            "RIVERRUN__LOG__URL": "redis://elsewhere:1/0",
            "RIVERRUN__LOG__PREFIX": "12",
            "RIVERRUN__LOG__OPTIONS__SECURITY_PROTOCOL": "PLAINTEXT",
            "RIVERRUN__LOG__OPTIONS__SASL_PASSWORD": "s3cret # not a comment",
            "riverrun__models__FLIGHTS__snapshot__every": "1s",
            "RIVERRUN__MODELS__FLIGHTS__WINDOW__COUNT": "16",
            "RIVERRUN__MODELS__FLIGHTS__PREDICTIONS": "true",
            "RIVERRUN__MODELS__FLIGHTS__DRIFT__DETECTORS": '["page_hinkley"]',
            "RIVERRUN__MODELS__FLIGHTS__FEATURES__CARRIER_NAME": "category?",
            "RIVERRUN__MODELS__OTHER_ONE__LABEL": "7",
            "RIVERRUNX": "no",
            "PATH": "/bin",
        },
    )
    assert config.log.url == "redis://elsewhere:1/0"
    assert config.log.prefix == "12"
    assert config.log.options == {
        "security.protocol": "PLAINTEXT",
        "sasl.password": "s3cret # not a comment",
    }
    flights = config.models["flights"]
    assert flights.snapshot.every == 1_000
    assert flights.window.count == 16
    assert flights.predictions is True
    assert flights.drift.detectors == ["page_hinkley"]
    assert flights.features == {"distance": "float", "Carrier-Name": "category?"}
    assert config.models["other-one"].label == "7"
    assert load_config(path, {}).log.url == "kafka://localhost:9092"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.5", 1.5),
        ("true", True),
        ('"1"', "1"),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ("redis://h:1/0", "redis://h:1/0"),
        ("", ""),
        ("2024-01-01", "2024-01-01"),
        ("5s", "5s"),
        ("1\nother = 2", "1\nother = 2"),
        ("[" * 5_000, "[" * 5_000),
    ],
)
def test_values_of_variables(text: str, value: Any) -> None:
    assert parse_value(text) == value


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
logg = 1
[log]
url = "redis://:hunter2@host/0"
prefix = 3
[log.options]
"sasl.password" = ["hunter2"]
[serving]
port = 99999
[models."a b"]
task = "binary"
[models.f]
task = "binry"
events = "e"
clases = ["a"]
max_classes = 1
classes = [1, "a"]
features = { x = "floot", y = "int at", z = 3, ok = "float" }
window = { count = 0 }
drift = { detectors = [1, "adwin", {a = 2}], on_drift = "challanger" }
snapshot = { every = "5 sec" }
[models.g]
task = "binary"
events = "e"
classes = [1, 2, 3]
features = 3
window = 3
""",
    )
    found = problems(path, {"RIVERRUN__MODELS__G__SNAPSHOT__KEEP": "0", "RIVERRUN__LOG__URL__X": "1"})
    text = "\n".join(found)
    assert all(p.startswith(f"{path}: ") for p in found)
    assert "hunter2" not in text
    for expected in (
        'logg: unknown key; did you mean "log"?',
        "RIVERRUN__LOG__URL__X: log.url is a value, not a table",
        "log.prefix: 3 is not a text in quotes",
        "log.options.sasl.password: must be ",
        "serving.port: 99999 is not at most 65535",
        "models: a model's name is 1 to 64 of A-Z a-z 0-9 _ -, not 'a b'",
        "models.a b.events: missing; add events",
        "models.a b.features: missing; add a table of features",
        "models.f.task: 'binry' is not one of binary, multiclass, regression; did you mean \"binary\"?",
        'models.f.clases: unknown key; did you mean "classes"?',
        "models.f.max_classes: 1 is not at least 2",
        "models.f: classes: different values of one type",
        "models.f.features.x: one of float, int, bool, category, any",
        'not "floot"; did you mean "float"?',
        "models.f.features.y: one of float",
        "models.f.features.z: a kind in quotes",
        "models.f.window.count: 0 is not at least 1",
        "models.f.drift.detectors[0]: 1 is not a text in quotes or a table",
        "models.f.drift.detectors[2].a: 2 is not a table",
        "models.f.drift.on_drift: 'challanger' is not one of",
        'models.f.snapshot.every: a duration such as "250ms"',
        "models.g: classes: two for a binary task, the positive one last; 3 given",
        'models.g.features: a table of features, or "any"',
        "models.g.window: 3 is not a table",
        "models.g.snapshot.keep (from RIVERRUN__MODELS__G__SNAPSHOT__KEEP): 0 is not at least 1",
    ):
        assert expected in text, text
    assert len(found) == 24
    assert len(set(found)) == len(found)


def test_secrets_of_variables_are_not_told(tmp_path: Path) -> None:
    found = problems(
        write(tmp_path, GOOD),
        {
            "RIVERRUN__LOG__OPTIONS__SASL_PASSWORD": '["hunter2"]',
            "RIVERRUN__STORE__URL": "[1, 22334455]",
            "RIVERRUN__SERVING__ADMIN_TOKEN_FILE": "[3, 22334455]",
        },
    )
    assert len(found) == 3
    assert "hunter2" not in "".join(found)
    assert "22334455" not in "".join(found)
    assert "store.url (from RIVERRUN__STORE__URL): must be a text in quotes" in "\n".join(found)


def test_checks_see_every_model_that_is_right_so_far(tmp_path: Path) -> None:
    def check(name: str, model: ModelConfig) -> list[str]:
        return [f"models.{name}.learner: no kind {model.learner.kind}"]

    path = write(tmp_path, GOOD)
    assert (
        problems(path, checks=[check, check])[:2] == [f"{path}: models.flights.learner: no kind linear"] * 2
    )
    found = problems(path, {"RIVERRUN__MODELS__FLIGHTS__TASK": "x"}, checks=[check])
    assert [p.split(": ")[1] for p in found] == [
        "models.flights.task (from RIVERRUN__MODELS__FLIGHTS__TASK)",
        "models.other-one.learner",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[log\n", "not valid TOML: "),
        (b'a = 1\nb = "x\n', "line 2"),
        (b"\xff", "not UTF-8"),
        (b"", "models: none configured; `riverrun init FILE` writes one"),
        (b"x = " + b"[" * 100_000, "not valid TOML: "),
        (b"models = 3", "models: 3 is not a table"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    (problem,) = problems(path)
    assert words in problem
    assert problem.startswith(str(path))


def test_a_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (None, Path("riverrun.toml")):
        (problem,) = problems(path)
        assert "riverrun.toml: no such file; `riverrun init FILE" in problem
    assert "cannot be read" in problems(tmp_path)[0]
    assert load_config(None, {"RIVERRUN__SERVING__PORT": "1"}, require="nothing").serving.port == 1
    write(tmp_path, GOOD)
    assert list(load_config(None, {}).models) == ["flights", "other-one"]


def test_picking_a_model() -> None:
    one = Config(models={"flights": ModelConfig(task="binary", events="e", features="any")})
    two = Config(models={**one.models, "other": one.models["flights"]})
    assert pick_model(one, None)[0] == "flights"
    assert pick_model(two, "other")[0] == "other"
    with pytest.raises(ConfigError, match="one of: flights, other"):
        pick_model(two, None)
    with pytest.raises(UnknownModel, match='no model "flight"; did you mean "flights"'):
        pick_model(two, "flight")
