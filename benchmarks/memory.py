"""The trainer's memory over a million events: does it stay flat?

    python benchmarks/memory.py [--json] [--quick]

`riverrun train` as a process of its own over a real Kafka broker and a private Redis; flights of three years
(the one year there is, over and over, with new ids and later times), labels hours behind, three in a hundred
never. Its resident memory is read as it goes; what counts is the median of the last
quarter less that of the second, when buffers and queues have filled.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from pipeline import ROOT, broker_module

from cli.demo_data import NAME, ROWS, demo_config_text, demo_rows
from cli.embedded_redis import EmbeddedRedis
from core.records import OutRecord
from snapshots.open_store import Store, open_store
from stream.log.open_log import open_log

YEAR_MS = 365 * 86_400_000
AIM_MIB = 20.0
EVENTS_PER_S = 20_000


def produce(kafka: str, passes: int, rows: int) -> None:
    """Sends the flights `passes` times over, at a pace that the trainer keeps up with: what a backlog
    fills in the client's fetch queue (up to 32 MiB a topic) is not what is asked here."""
    started_s, sent = time.monotonic(), 0
    log = open_log(kafka)
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    for year in range(passes):
        for chunk in demo_rows(rows).chunks():
            for topic, columns in (
                (chunk.events_topic, chunk.events),
                (str(chunk.labels_topic), chunk.labels),
            ):
                records = []
                for value, ts in zip(columns.values, columns.timestamps_ms.tolist(), strict=True):
                    told = decode(value)
                    told |= {"id": f"{year}-{told['id']}", "ts": told["ts"] + year * YEAR_MS}
                    records.append(OutRecord(encode(told), timestamp_ms=ts + year * YEAR_MS))
                log.append(topic, records)
            sent += len(chunk.events)
            time.sleep(max(0.0, sent / EVENTS_PER_S - (time.monotonic() - started_s)))
    log.close()


def seen(store: Store) -> int:
    """Events in the newest version."""
    versions = store.snapshots.versions(NAME)
    if not versions:
        return 0
    return int(store.snapshots.load(NAME, versions[-1], parts=()).manifest["counts"]["events"])


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def measure(passes: int, rows: int) -> list[dict[str, Any]]:
    """Memory at every so many events."""
    module = broker_module()
    samples: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, EmbeddedRedis() as server:
        broker = module.Broker(Path(name, "kafka"), module.fetch_libs())
        broker.start(tied=True)
        store = open_store(server.url)
        try:
            config = Path(name, "riverrun.toml")
            config.write_text(demo_config_text())
            log = open_log(broker.url)
            for topic in ("flights.events", "flights.labels"):
                log.create(topic)
            log.close()
            trainer = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "train", "-c", str(config), "--metrics-port", "0"],
                env={**os.environ, "RIVERRUN__LOG__URL": broker.url, "RIVERRUN__STORE__URL": server.url},
                cwd=ROOT,
                stderr=subprocess.DEVNULL,
            )
            try:
                sender = threading.Thread(target=produce, args=(broker.url, passes, rows))
                sender.start()
                total, at = passes * rows, 0
                while at < total:
                    if trainer.poll() is not None:
                        raise RuntimeError(f"the trainer ended with status {trainer.returncode}")
                    time.sleep(0.5)
                    at = seen(store)
                    samples.append({"events": at, "resident_mib": resident_mib(trainer.pid)})
                sender.join()
            finally:
                trainer.terminate()
                trainer.wait()
        finally:
            store.close()
            broker.stop()
    return samples


def report(passes: int, rows: int) -> dict[str, Any]:
    samples = measure(passes, rows)
    total = passes * rows
    steps = [total * i // 10 for i in range(1, 11)]
    picked = [next(s for s in samples if s["events"] >= step) for step in steps]
    early, late = (
        statistics.median(s["resident_mib"] for s in samples if low * total <= s["events"] <= high * total)
        for low, high in ((0.25, 0.5), (0.75, 1.0))
    )
    added = late - early
    return {
        "benchmark": "memory",
        "versions": {"python": platform.python_version(), "riverrun": version("riverrun")},
        "machine": {"cpus": os.cpu_count(), "system": platform.system(), "processor": platform.machine()},
        "rows": picked,
        "targets": [
            {
                "name": f"MiB, last quarter of {total:,} events over the second (medians), at most",
                "value": added,
                "aim": AIM_MIB,
                "ok": added <= AIM_MIB,
            }
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a fifth of it")
    args = parser.parse_args()
    result = report(3, ROWS // 5) if args.quick else report(3, ROWS)
    if args.json:
        print(json.dumps(result))
        return
    for row in result["rows"]:
        print(f"{row['events']:>10,} events {row['resident_mib']:7.0f} MiB")
    for target in result["targets"]:
        verdict = "met" if target["ok"] else "missed"
        print(f"{target['name']}: {target['value']:.1f} (aim {target['aim']:g}): {verdict}")


if __name__ == "__main__":
    main()
