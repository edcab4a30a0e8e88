"""The trainer's memory over a million events: does it stay flat?

    python benchmarks/memory.py [--json] [--quick]

`riverrun train` as a process of its own over a real Kafka broker and a private Redis; flights of three years
(the one year there is, over and over, with new ids and later times), labels hours behind, three in a hundred
never. Its resident memory is read as it goes; what counts is how much is added in the
second half, when buffers and queues have filled.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from pipeline import broker_module

from cli.demo_data import NAME, ROWS, demo_config_text, demo_rows
from cli.embedded_redis import EmbeddedRedis
from cli.processes import Processes
from core.records import OutRecord
from snapshots.open_store import Store, open_store
from stream.log.open_log import open_log

YEAR_MS = 365 * 86_400_000
AIM_MIB = 20.0


def produce(kafka: str, passes: int, rows: int) -> None:
    """Sends the flights `passes` times over."""
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
            environ = {"RIVERRUN__LOG__URL": broker.url, "RIVERRUN__STORE__URL": server.url}
            with Processes(environ, Path(name)) as processes:
                processes.start("trainer", ["train", "-c", str(config), "--metrics-port", "0"])
                sender = threading.Thread(target=produce, args=(broker.url, passes, rows))
                sender.start()
                total, at = passes * rows, 0
                while at < total:
                    processes.check()
                    time.sleep(0.5)
                    at = seen(store)
                    samples.append({"events": at, "resident_mib": resident_mib(processes.pid("trainer"))})
                sender.join()
        finally:
            store.close()
            broker.stop()
    return samples


def report(passes: int, rows: int) -> dict[str, Any]:
    samples = measure(passes, rows)
    total = passes * rows
    steps = [total * i // 10 for i in range(1, 11)]
    picked = [next(s for s in samples if s["events"] >= step) for step in steps]
    early = max(s["resident_mib"] for s in samples if s["events"] <= total / 2)
    late = max(s["resident_mib"] for s in samples)
    added = max(late - early, 0.0)
    return {
        "benchmark": "memory",
        "versions": {"python": platform.python_version(), "riverrun": version("riverrun")},
        "machine": {"cpus": os.cpu_count(), "system": platform.system(), "processor": platform.machine()},
        "rows": picked,
        "targets": [
            {
                "name": f"MiB added in the second half of {total:,} events, at most",
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
