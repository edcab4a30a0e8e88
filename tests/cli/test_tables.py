"""Files of every kind give the same rows, and say clearly what is wrong with them."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from cli.files.rows import BATCH_ROWS
from cli.files.tables import check_columns, open_table
from core.errors import ConfigError

ROWS: list[dict[str, Any]] = [
    {"a": str(i), "b": "x,y" if i % 3 else 'say "hi"\nagain', "c": "é" * (i % 4 + 1)} for i in range(20_000)
]


def csv_bytes(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    import csv

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    name = path.name
    table = pa.Table.from_pylist(rows)
    lines = "\n".join(json.dumps(row) for row in rows).encode()
    if ".parquet" in name:
        pq.write_table(table, path, row_group_size=7_000)
    elif ".feather" in name:
        feather.write_feather(table, path, compression="zstd", chunksize=9_000)
    elif ".arrow" in name:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        data = csv_bytes(rows, "\t" if ".tsv" in name else ",") if "sv" in name else lines
        if name.endswith(".gz"):
            data = gzip.compress(data)
        if name.endswith(".zip"):
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(name[: -len(".zip")], data)
            return path
        path.write_bytes(data)
    return path


def cells(column: Any) -> list[Any]:
    return column if isinstance(column, list) else column.to_pylist()


TEXT = [f"t.{kind}{packed}" for kind in ("csv", "tsv", "jsonl", "ndjson") for packed in ("", ".gz", ".zip")]
NAMES = [*TEXT, "t.parquet", "t.arrow", "t.feather"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_in_order_in_small_batches(tmp_path: Path, name: str) -> None:
    table = open_table(write(tmp_path / name, ROWS))
    assert list(table.columns) == ["a", "b", "c"]
    assert table.rows in (None, len(ROWS))
    for wanted in (["c", "a"], ["b"]):
        found: dict[str, list[Any]] = {n: [] for n in wanted}
        for rows in table.batches(wanted):
            assert rows.count <= BATCH_ROWS
            for n in wanted:
                assert len(rows.columns[n]) == rows.count
                found[n] += cells(rows.columns[n])
        assert found == {n: [row[n] for row in ROWS] for n in wanted}


@pytest.mark.parametrize("name", NAMES)
def test_rows_in_another_order(tmp_path: Path, name: str) -> None:
    table = open_table(write(tmp_path / name, ROWS))
    order = np.random.default_rng(0).permutation(len(ROWS))[:12_345]
    found = [c for rows in table.gather(["a"], order) for c in cells(rows.columns["a"])]
    assert found == [str(i) for i in order]


def test_the_delimiter_is_seen_and_blank_lines_and_a_byte_order_mark_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfa;"b,c"\n\n1;2\n\n3;4\n')
    table = open_table(path)
    assert list(table.columns) == ["a", "b,c"]
    assert [cells(r.columns["b,c"]) for r in table.batches(["b,c"])] == [["2", "4"]]


def test_json_lines_have_nested_columns_and_gaps(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"id": 1, "f": {"x": 1.5, "y": {"z": "q"}}}\n\n{"f": {"x": null}, "late": true}\n{"f": 3}\n'
    )
    table = open_table(path)
    assert set(table.columns) == {"id", "f.x", "f.y.z", "late", "f"}
    (rows,) = table.batches(["f.x", "f.y.z", "late", "id"])
    assert rows.columns == {
        "f.x": [1.5, None, None],
        "f.y.z": ["q", None, None],
        "late": [None, True, None],
        "id": [1, None, None],
    }


def broken(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        read_all(path)
    return str(caught.value)


def read_all(path: Path) -> None:
    table = open_table(path)
    for _ in table.batches(list(table.columns)):
        pass


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("t.csv", b"", "the file is empty"),
        ("t.csv", b"\n\n", "the file is empty"),
        ("t.csv", b"a,b\n1,2\n\n3\n4,5\n", "line 4 has 1 cells, the header has 2"),
        ("t.csv", b'a,b\n"x\ny",2\n3,4,5\n', "line 4 has 3 cells"),
        ("t.csv", b"a,b\n1,\xff\n", "line 2 is not UTF-8"),
        ("t.csv", b"\xff,b\n1,2\n", "line 1 is not UTF-8"),
        ("t.csv", b"a,a,b\n1,2,3\n", 'columns of one name in the header: "a"'),
        ("t.csv.gz", b"not gzip", "cannot be read"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n" * 50)[:-12], "cannot be read"),
        ("t.zip", b"not zip", "not a readable zip"),
        ("t.parquet", b"PAR1 no", "not a readable Parquet file"),
        ("t.feather", b"ARROW1 no", "not a readable Arrow file"),
        ("t.xlsx", b"PK", "unknown kind of file '.xlsx'; known are .csv"),
        ("t.gz", b"x", "unknown kind of file ''"),
        ("t.jsonl", b'{"a": 1}\n[1]\n', "line 2 is not a JSON object"),
        ("t.jsonl", b'{"a": 1}\n\n{"a": NaN}\n', "line 3 is not a JSON object"),
        ("t.jsonl", b'{"a": "\xff"}\n', "line 1 is not a JSON object"),
        ("t.jsonl", b"[" * 20_000, "line 1 is not a JSON object"),
        ("t.jsonl", b"{}\n\n", "no objects"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    message = broken(tmp_path / name, data)
    assert words in message
    assert str(tmp_path / name) in message


def test_a_broken_line_far_down_is_found(tmp_path: Path) -> None:
    lines = [b"a,b"] + [b"%d,x" % i for i in range(400_000)]
    lines[300_000] += b",y"
    assert "line 300001 has 3 cells" in broken(tmp_path / "t.csv", b"\n".join(lines))


def test_a_missing_file_and_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "flights.csv").write_text("a\n1\n")
    for path, words in (
        (tmp_path / "flight.csv", f'no such file; did you mean "{tmp_path / "flights.csv"}"?'),
        (tmp_path / "no" / "t.csv", "there is no folder"),
        (tmp_path, "not a file"),
    ):
        with pytest.raises(ConfigError) as caught:
            open_table(path)
        assert words in str(caught.value)


def test_two_files_in_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")
    with pytest.raises(ConfigError, match="one file in it, not 2"):
        open_table(tmp_path / "t.zip")


def test_missing_columns_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("distance,carrier\n1,2\n")
    with pytest.raises(ConfigError) as caught:
        check_columns(path, open_table(path), {"distanc": "x", "carrier": "y", "zzz": "z"})
    assert caught.value.problems == [
        f'{path}: no column "distanc" (x); did you mean "distance"?',
        f'{path}: no column "zzz" (z); it has distance, carrier',
    ]
