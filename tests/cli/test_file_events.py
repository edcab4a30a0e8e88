"""A file's rows become the records that a model's configuration describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.file_events import FileEvents, iter_records
from core.config import ModelConfig
from core.errors import ConfigError
from core.records import PlainRecords
from stream.codec.decoder import RecordDecoder

FEATURES = {"distance": "float", "stops": "int?", "cargo": "bool", "carrier": "category?"}
FILE = {"id": "flight", "ts": "at", "label": "late", "label_ts": "known"}


def model(**changes: Any) -> ModelConfig:
    base = {
        "task": "binary",
        "events": "e",
        "labels": "l",
        "label": "late",
        "features": FEATURES,
        "file": FILE,
    }
    return ModelConfig.model_validate(base | changes)


def write_csv(path: Path, header: str, *lines: str) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def sent(path: Path, config: ModelConfig, limit: int | None = None) -> list[tuple[str, Any, str | None, int]]:
    """(topic, object, key, timestamp) of every record in order."""
    return [
        (topic, json.loads(r.value or b""), None if r.key is None else r.key.decode(), r.timestamp_ms or 0)
        for part in iter_records(path, "flights", config, limit)
        for topic, r in part
    ]


HEADER = "flight,at,distance,stops,cargo,carrier,late,known"


def test_events_and_labels_as_designed(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "t.csv",
        HEADER,
        "a,1970-01-01T00:00:01Z,1.5,2,yes,UA,true,1970-01-01T00:00:03Z",
        "b,2000,2,,0,NA,no,",
        "c,3000,3,1.0,1,007,0,3500",
    )
    assert sent(path, model()) == [
        (
            "e",
            {
                "id": "a",
                "ts": 1000,
                "features": {"distance": 1.5, "stops": 2, "cargo": True, "carrier": "UA"},
            },
            "a",
            1000,
        ),
        (
            "e",
            {
                "id": "b",
                "ts": 2000,
                "features": {"distance": 2.0, "stops": None, "cargo": False, "carrier": None},
            },
            "b",
            2000,
        ),
        ("l", {"id": "a", "ts": 3000, "label": True}, "a", 3000),
        (
            "e",
            {
                "id": "c",
                "ts": 3000,
                "features": {"distance": 3.0, "stops": 1, "cargo": True, "carrier": "007"},
            },
            "c",
            3000,
        ),
        ("l", {"id": "c", "ts": 3500, "label": False}, "c", 3500),
    ]


def test_without_a_labels_topic_the_label_is_in_the_event(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", "x,class", "1,UP", "2,", "3,DOWN")
    config = model(labels=None, label="class", classes=["DOWN", "UP"], features={"x": "float"}, file={})
    assert sent(path, config) == [
        ("e", {"id": "0", "ts": 0, "features": {"x": 1.0}, "label": "UP"}, "0", 0),
        ("e", {"id": "1", "ts": 1, "features": {"x": 2.0}}, "1", 1),
        ("e", {"id": "2", "ts": 2, "features": {"x": 3.0}, "label": "DOWN"}, "2", 2),
    ]


def test_with_a_labels_topic_and_no_time_the_label_follows_its_event(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", "x,late", "1,true", "2,", "3,false")
    records = sent(path, model(features={"x": "float"}, file={}))
    assert [(topic, value["id"], value["ts"]) for topic, value, _, _ in records] == [
        ("e", "0", 0),
        ("l", "0", 0),
        ("e", "1", 1),
        ("e", "2", 2),
        ("l", "2", 2),
    ]


def test_fields_go_to_configured_paths(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", "k,x,y,z,late", "a,1,2,3,1")
    config = model(
        features={"x": "float at deep.x", "y": "int at deep.y", "z": "category"},
        fields={"id": "meta.id", "ts": "meta.at", "features": ""},
        label_fields={"id": "k", "ts": "at", "label": "truth.late"},
        file={"id": "k"},
    )
    assert [value for _, value, _, _ in sent(path, config)] == [
        {"meta": {"id": "a", "at": 0}, "deep": {"x": 1.0, "y": 2}, "z": "3"},
        {"k": "a", "at": 0, "truth": {"late": True}},
    ]
    clash = config.model_copy(update={"fields": config.fields.model_copy(update={"ts": "meta.id.x"})})
    with pytest.raises(ConfigError, match=r'one path, or one lies in another: "meta.id.x"'):
        FileEvents(path, "flights", clash)


def test_open_features_take_every_other_column(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", 'late,x.1,"q ""u""",z', "1,1.5,a,", "0,7,,true")
    records = sent(path, model(labels=None, features="any", file={}))
    assert [value["features"] for _, value, _, _ in records] == [
        {"x.1": 1.5, 'q "u"': "a"},
        {"x.1": 7, "z": True},
    ]


@pytest.mark.parametrize(
    ("task", "classes", "cells", "labels"),
    [
        ("binary", None, ["yes", "0", "1.0"], [True, False, True]),
        ("binary", [0, 1], ["1", "0.0", "1"], [1, 0, 1]),
        ("multiclass", [1, 2, 3], ["3", "1", "2"], [3, 1, 2]),
        ("multiclass", None, ["007", "x", "1"], ["007", "x", "1"]),
        ("multiclass", ["a", "1"], ["a", "1", "zz"], ["a", "1", "zz"]),
        ("regression", None, ["1", "-2.5", "oops"], [1.0, -2.5, "oops"]),
        ("binary", None, ["perhaps", "1", "0"], ["perhaps", True, False]),
    ],
)
def test_labels_by_task_and_classes(
    tmp_path: Path, task: str, classes: Any, cells: list[str], labels: list[Any]
) -> None:
    path = write_csv(tmp_path / "t.csv", "x,late", *(f"1,{c}" for c in cells))
    config = model(task=task, classes=classes, labels=None, features={"x": "float"}, file={})
    found = [value["label"] for _, value, _, _ in sent(path, config)]
    assert [(type(v), v) for v in found] == [(type(v), v) for v in labels]


def test_cells_that_do_not_fit_are_sent_and_then_refused_with_a_reason(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "t.csv",
        HEADER,
        "a,1000,1,1,1,UA,1,2000",
        "b,soon,2,1,1,UA,1,2000",
        "c,1500,far,1,1,UA,1,later",
        "d,1600,inf,1,1,UA,maybe,2000",
        "e,1700,,1,1,UA,1,2000",
        "f,1800,1,2.5,1,UA,1,1",
        "g,1900,1,2,1,UA,1,2000",
    )
    config = model()
    records = sent(path, config)
    events = {value["id"]: value for topic, value, _, _ in records if topic == "e"}
    labels = {value["id"]: value for topic, value, _, _ in records if topic == "l"}
    assert list(events) == list("abcdefg")
    assert events["b"]["ts"] == "soon"
    assert events["c"]["features"]["distance"] == "far"
    assert events["d"]["features"]["distance"] == "inf"
    assert events["e"]["features"]["distance"] is None
    assert events["f"]["features"]["stops"] == "2.5"
    assert labels["c"]["ts"] == "later"
    assert labels["d"]["label"] == "maybe"
    assert labels["f"]["ts"] == 1800  # never before its event
    times = [at for _, _, _, at in records]
    assert times == sorted(times)

    def refused(topic: str, is_event: bool) -> list[str]:
        raw = [r for part in iter_records(path, "flights", config) for t, r in part if t == topic]
        lane = PlainRecords(
            np.arange(len(raw)),
            [r.value for r in raw],
            np.array([r.timestamp_ms for r in raw]),
            [r.key for r in raw],
            len(raw),
        )
        decoded = RecordDecoder(config, events=is_event).decode(lane)
        return [str(json.loads(raw[row].value or b"")["id"]) for row, _ in decoded.rejects]

    assert refused("e", True) == ["b", "c", "d", "e", "f"]
    assert sorted(refused("l", False)) == ["c", "d"]


def test_rows_out_of_order_are_sorted_and_ties_keep_their_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    at = rng.integers(0, 3_000, 20_000)
    lines = [
        f"r{i},{t},1,1,1,UA,1,{t + int(d)}"
        for i, (t, d) in enumerate(zip(at, rng.integers(0, 99, 20_000), strict=True))
    ]
    records = sent(write_csv(tmp_path / "t.csv", HEADER, *lines), model())
    events = [value["id"] for topic, value, _, _ in records if topic == "e"]
    assert events == [f"r{i}" for i in np.argsort(at, kind="stable")]
    assert [t for *_, t in records] == sorted(t for *_, t in records)
    place = {value["id"]: n for n, (topic, value, _, _) in enumerate(records) if topic == "e"}
    assert all(place[value["id"]] < n for n, (topic, value, _, _) in enumerate(records) if topic == "l")
    assert sum(topic == "l" for topic, *_ in records) == 20_000


def test_too_many_rows_out_of_order_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.file_events.SORTABLE_ROWS", 2)
    config = model(labels=None, features={"x": "float"}, file={"ts": "at"})
    write_csv(tmp_path / "t.csv", "at,x,late", "3,1,1", "2,1,1", "1,1,1")
    with pytest.raises(ConfigError, match='3 rows, not in the order of "at"; at most 2'):
        FileEvents(tmp_path / "t.csv", "flights", config)
    write_csv(tmp_path / "t.csv", "at,x,late", "1,1,1", "2,1,1", "3,1,1")
    assert FileEvents(tmp_path / "t.csv", "flights", config).rows == 3


@pytest.mark.parametrize("n", [1, 2, 8_192, 8_193, 20_001])
def test_a_limit_takes_the_first_rows_with_their_labels(tmp_path: Path, n: int) -> None:
    lines = [f"r{i},{i},1,1,1,UA,1,{i + 9_000}" for i in range(20_000)]
    path = write_csv(tmp_path / "t.csv", HEADER, *lines)
    records = sent(path, model(), limit=n)
    expected = [f"r{i}" for i in range(min(n, 20_000))]
    assert [value["id"] for topic, value, _, _ in records if topic == "e"] == expected
    assert [value["id"] for topic, value, _, _ in records if topic == "l"] == expected
    assert FileEvents(path, "flights", model(), n).rows == len(expected)


def test_chunks_and_records_agree_and_can_be_read_again(tmp_path: Path) -> None:
    lines = [f"r{i},{i},1,1,1,UA,1,{i + 9_000}" for i in range(20_000)]
    source = FileEvents(write_csv(tmp_path / "t.csv", HEADER, *lines), "flights", model())
    for _ in range(2):
        chunks = list(source.chunks())
        times = np.concatenate([c.timestamps_ms for c in chunks])
        records = [r for c in chunks for r in c.records()]
        assert times.tolist() == [r.timestamp_ms for _, r in records]
        assert len(records) == sum(map(len, chunks)) == 40_000
        assert (np.diff(times) >= 0).all()


def test_all_missing_columns_and_contradictions_at_once(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", "flight,at,distanc,late", "1,2,3,4")
    config = model(labels=None, features={"distance": "float", "zzz": "any", "late": "bool"})
    with pytest.raises(ConfigError) as caught:
        FileEvents(path, "flights", config)
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 5
    assert 'no column "distance" (models.flights.features.distance); did you mean "distanc"?' in text
    assert 'no column "zzz" (models.flights.features.zzz); it has flight, at, distanc, late' in text
    assert 'no column "known" (models.flights.file.label_ts)' in text
    assert 'models.flights.features.late: "late" is the label or its time, no feature' in text
    assert (
        "models.flights.file.label_ts: labels that come later need a topic: set models.flights.labels" in text
    )


def test_records_in_a_file_are_read_by_their_paths(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "a", "ts": 5, "features": {"x": 1, "y": {"z": "q"}}, "label": true}\n')
    config = model(
        labels=None,
        label="label",
        features={"x": "float", "z": "category at y.z"},
        file={"id": "id", "ts": "ts"},
    )
    ((_, value, key, at),) = sent(path, config)
    assert value == {"id": "a", "ts": 5, "features": {"x": 1.0, "y": {"z": "q"}}, "label": True}
    assert (key, at) == ("a", 5)


def test_a_broken_line_is_found_before_anything_is_sent(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", "at,x,late", *(f"{i},1,1" for i in range(50_000)), "1,1,1,1")
    with pytest.raises(ConfigError, match="line 50002 has 4 cells"):
        FileEvents(path, "flights", model(labels=None, features={"x": "float"}, file={"ts": "at"}))
