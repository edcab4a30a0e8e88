"""From a Kafka topic to a learned model: examples per second and CPU, beside a plain loop.

    python benchmarks/pipeline.py [--json] [--quick]

One broker, one private Redis, one partition, flights as JSON (8 numbers and 2 strings, about 230 bytes).
Every pipeline is a process of its own; they take turns. riverrun does what `riverrun train` does: journal,
validation, scores, drift detection, replay buffer, snapshots. The plain loop is confluent-kafka, orjson
and River with a pickle in Redis; "read and decode" fetches and decodes, and does nothing else.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
from pipeline_workers import CARRIED, EVENTS, LABELS, NUMBERS, STRINGS, WORKERS

from cli.demo_data import demo_file
from cli.embedded_redis import EmbeddedRedis
from core.records import OutRecord
from stream.log.open_log import open_log

ROOT = Path(__file__).resolve().parents[1]
AIMS = (
    ("riverrun linear", "plain loop", 5.0),
    ("riverrun linear", "read and decode", 0.55),
    ("riverrun linear, late labels", "plain loop", 3.0),
    ("riverrun river", "plain loop", 0.9),
)


def produce(kafka: str, n: int) -> float:
    """Writes n labelled flights: with their labels, and apart from them. Returns the mean size in bytes."""
    columns = ["flight_id", "scheduled", "known_at", "late", *NUMBERS, *STRINGS]
    rows = [
        row for row in pq.read_table(demo_file(), columns=columns).to_pylist() if row["late"] is not None
    ][:n]
    encode = msgspec.json.Encoder().encode
    carried, events, labels = [], [], []
    for row in rows:
        ts, known = (int(row[name].timestamp() * 1000) for name in ("scheduled", "known_at"))
        features = {name: float(row[name]) for name in NUMBERS} | {name: row[name] for name in STRINGS}
        event = {"id": row["flight_id"], "ts": ts, "features": features}
        carried.append(OutRecord(encode({**event, "label": row["late"]}), timestamp_ms=ts))
        events.append(OutRecord(encode(event), timestamp_ms=ts))
        labels.append((known, encode({"id": row["flight_id"], "ts": known, "label": row["late"]})))
    order = np.argsort([known for known, _ in labels], kind="stable").tolist()
    log = open_log(kafka)
    for topic, records in (
        (CARRIED, carried),
        (EVENTS, events),
        (LABELS, [OutRecord(labels[i][1], timestamp_ms=labels[i][0]) for i in order]),
    ):
        log.create(topic)
        log.append(topic, records)
    log.close()
    return statistics.mean(len(record.value or b"") for record in carried)


def run(worker: str, kafka: str, redis_url: str, n: int) -> dict[str, Any]:
    """One run of one pipeline."""
    script = Path(__file__).with_name("pipeline_workers.py")
    done = subprocess.run(
        [sys.executable, str(script), worker, kafka, redis_url, str(n)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(n: int, repeats: int) -> tuple[list[dict[str, Any]], float]:
    """A row a pipeline, and the records' mean size."""
    module = broker_module()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, EmbeddedRedis() as server:
        broker = module.Broker(Path(folder), module.fetch_libs())
        broker.start(tied=True)
        try:
            size = produce(broker.url, n)
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in WORKERS}
            notes: dict[str, str] = {}
            for _ in range(repeats):
                for name in WORKERS:
                    if name == "plain loop" and _missing("orjson"):
                        notes[name] = "orjson is not installed"
                        continue
                    runs[name].append(run(name, broker.url, server.url, n))
        finally:
            broker.stop()
    return [_row(name, results, notes.get(name)) for name, results in runs.items()], size


def _row(name: str, results: list[dict[str, Any]], note: str | None) -> dict[str, Any]:
    if not results:
        return {"pipeline": name, "note": note}
    rates = sorted(r["examples"] / r["seconds"] for r in results)
    return {
        "pipeline": name,
        "examples_per_s": {"min": rates[0], "median": statistics.median(rates), "max": rates[-1]},
        "cpu_us": statistics.median(r["cpu_s"] / r["examples"] * 1e6 for r in results),
        "peak_mib": max(r["peak_mib"] for r in results),
        "accuracy": results[0]["accuracy"],
    }


def targets(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ratios of medians, and that equal models are equally accurate."""
    by_name = {row["pipeline"]: row for row in rows}
    found: list[dict[str, Any]] = []
    for ours, peer, aim in AIMS:
        rates = [by_name[name].get("examples_per_s") for name in (ours, peer)]
        value = None if None in rates else rates[0]["median"] / rates[1]["median"]
        ok = None if value is None else value >= aim
        found.append(
            {"name": f"{ours} over {peer}, examples/s, at least", "value": value, "aim": aim, "ok": ok}
        )
    ours, peer = by_name["riverrun linear"], by_name["plain loop"]
    gap = None if "note" in peer else abs(ours["accuracy"] - peer["accuracy"])
    name = "accuracy apart from the plain loop's, at most"
    found.append({"name": name, "value": gap, "aim": 1e-9, "ok": None if gap is None else gap <= 1e-9})
    return found


def report(n: int, repeats: int) -> dict[str, Any]:
    rows, size = measure(n, repeats)
    packages = ("riverrun", "confluent-kafka", "msgspec", "numba", "river", "orjson")
    return {
        "benchmark": "pipeline",
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in packages}},
        "machine": {"cpus": os.cpu_count(), "system": platform.system(), "processor": platform.machine()},
        "examples": n,
        "record_bytes": round(size, 1),
        "rows": rows,
        "targets": targets(rows),
    }


def show(result: dict[str, Any]) -> None:
    print(f"{result['examples']:,} examples of {result['record_bytes']:.0f} bytes")
    print(f"{'pipeline':30} {'examples/s min, median, max':>34} {'CPU µs':>8} {'MiB':>5} accuracy")
    for row in result["rows"]:
        if "note" in row:
            print(f"{row['pipeline']:30} {row['note']}")
            continue
        rates = "  ".join(f"{value:,.0f}" for value in row["examples_per_s"].values())
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
        print(f"{row['pipeline']:30} {rates:>34} {row['cpu_us']:8.2f} {row['peak_mib']:5.0f} {accuracy}")
    for target in result["targets"]:
        value = "-" if target["value"] is None else f"{target['value']:.3g}"
        verdict = {True: "met", False: "missed", None: "not measured"}[target["ok"]]
        print(f"{target['name']}: {value} (aim {target['aim']:g}): {verdict}")


def _missing(package: str) -> bool:
    return importlib.util.find_spec(package) is None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def broker_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kafka_broker", ROOT / "deploy" / "kafka" / "broker.py")
    if spec is None or spec.loader is None:
        raise ImportError("deploy/kafka/broker.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kafka_broker"] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer examples, one run")
    args = parser.parse_args()
    result = report(100_000, 1) if args.quick else report(300_000, 3)
    print(json.dumps(result)) if args.json else show(result)


if __name__ == "__main__":
    main()
