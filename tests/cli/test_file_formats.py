"""The same rows in any kind of file become the same records."""

from __future__ import annotations

import csv
import json
import string
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.file_events import iter_records
from core.config import ModelConfig

FEATURES = {"distance": "float", "stops": "int?", "cargo": "bool", "carrier": "category?"}
MODEL = ModelConfig.model_validate(
    {
        "task": "binary",
        "events": "e",
        "labels": "l",
        "label": "late",
        "features": FEATURES,
        "file": {"id": "flight", "ts": "at", "label": "late", "label_ts": "known"},
    }
)


def sent(path: Path) -> list[tuple[str, Any, bytes | None, int | None]]:
    """(topic, object, key, timestamp) of every record in order."""
    return [
        (topic, json.loads(r.value or b""), r.key, r.timestamp_ms)
        for part in iter_records(path, "flights", MODEL)
        for topic, r in part
    ]


WORDS = st.text(string.ascii_letters + "é,;\" '", min_size=1, max_size=5).filter(lambda t: t.strip() == t)
ROW = st.fixed_dictionaries(
    {
        "at": st.integers(0, 10_000),
        "distance": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "stops": st.none() | st.integers(-(2**40), 2**40),
        "cargo": st.none() | st.booleans(),
        "carrier": st.none() | WORDS.filter(lambda t: t != "NA"),
        "late": st.none() | st.booleans(),
        "known": st.none() | st.integers(0, 20_000),
    }
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(ROW, min_size=1, max_size=15))
def test_the_same_table_in_any_format_is_the_same_records(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    rows = [{"flight": f"f{i}", **row} for i, row in enumerate(rows)]
    types = [
        ("flight", pa.string()), ("at", pa.int64()), ("distance", pa.float64()), ("stops", pa.int64()),
        ("cargo", pa.bool_()), ("carrier", pa.string()), ("late", pa.bool_()), ("known", pa.int64()),
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, pa.schema(types))
    pq.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, tmp_path / "t.feather")
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with (tmp_path / "t.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    found = [sent(tmp_path / f"t.{kind}") for kind in ("parquet", "feather", "jsonl", "csv")]
    assert found[0] == found[1] == found[2] == found[3]
    assert sorted(v["id"] for topic, v, _, _ in found[0] if topic == "e") == sorted(r["flight"] for r in rows)
    assert {v["id"]: v["label"] for topic, v, _, _ in found[0] if topic == "l"} == {
        r["flight"]: r["late"] for r in rows if r["late"] is not None and r["known"] is not None
    }
    assert {v["id"]: v["features"] for topic, v, _, _ in found[0] if topic == "e"} == {
        r["flight"]: {name: r[name] for name in FEATURES} for r in rows
    }
