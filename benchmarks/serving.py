"""Answers per second and latency of one worker, beside FastAPI with the same model.

    python benchmarks/serving.py [--json] [--quick]

Each server is a process of its own; wrk asks each in turn, over and over, with 32 connections. The model
is the compiled `linear` learner on 8 numbers and 2 strings. Servers: riverrun with everything on
(validation, routing, metrics); FastAPI as it is usually written (pydantic in and out, `async def`); a bare
ASGI function with orjson that trusts its input, which is what is left when everything is taken away.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

SERVERS = ("riverrun", "fastapi", "asgi")
PROCESS = Path(__file__).with_name("serving_servers.py")
NUMBERS = tuple(f"n{i}" for i in range(8))
CONNECTIONS, THREADS = 32, 2

SCRIPT = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.body = [[%s]]
done = function(summary, latency)
  local e = summary.errors
  print(string.format('{"requests": %%d, "seconds": %%.6f, "p50_ms": %%.4f, "p99_ms": %%.4f, "errors": %%d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""


class Server:
    """A server in a process of its own, asked once so that it is known to answer."""

    def __init__(self, name: str) -> None:
        import httpx

        self.name = name
        self.port = _free_port()
        self.process = subprocess.Popen([sys.executable, str(PROCESS), name, str(self.port)])
        self.url = f"http://127.0.0.1:{self.port}/v1/models/flights/predict"
        deadline = time.monotonic() + 60.0
        while True:
            try:
                answer = httpx.post(self.url, json=body(), timeout=10.0)
                if answer.status_code == 200:
                    break
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.stop()
                raise RuntimeError(f"{name} does not answer")
            time.sleep(0.1)
        self.answer: dict[str, Any] = answer.json()

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def body() -> dict[str, Any]:
    numbers = {name: 1_000.25 + 1.5 * i for i, name in enumerate(NUMBERS)}
    return {"id": "e12", "features": {**numbers, "carrier": "UA", "origin": "JFK"}}


def ask(server: Server, script: Path, seconds: float) -> dict[str, float]:
    """One run of wrk."""
    command = ["wrk", f"-t{THREADS}", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "-s", str(script), server.url]
    before = server.cpu_s()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured = json.loads(done.stdout[done.stdout.index('{"requests"') :])
    if measured["errors"]:
        raise RuntimeError(f"{server.name}: {measured['errors']} errors")
    cpu_us = (server.cpu_s() - before) / measured["requests"] * 1e6
    return {
        "requests_per_s": measured["requests"] / measured["seconds"],
        "p50_ms": measured["p50_ms"],
        "p99_ms": measured["p99_ms"],
        "cpu_us": cpu_us,
    }


def measure(repeats: int, seconds: int) -> list[dict[str, Any]]:
    """A row a server: minimum, median and maximum of interleaved runs."""
    if shutil.which("wrk") is None:
        return [{"server": name, "note": "wrk is not installed"} for name in SERVERS]
    rows: dict[str, dict[str, Any]] = {name: {"server": name} for name in SERVERS}
    servers: list[Server] = []
    try:
        for name in SERVERS:
            try:
                if name == "fastapi":
                    version("fastapi")
                if name == "asgi":
                    version("orjson")
            except PackageNotFoundError:
                rows[name]["note"] = "not installed"
                continue
            servers.append(Server(name))
        scores = [s.answer["predictions"][0]["probabilities"] for s in servers]
        if any(score != scores[0] for score in scores):
            raise RuntimeError(f"the servers do not answer with the same model: {scores}")
        runs: dict[str, list[dict[str, float]]] = {server.name: [] for server in servers}
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "post.lua")
            script.write_text(SCRIPT % json.dumps(body()))
            for server in servers:
                ask(server, script, 1)  # warm
            for _ in range(repeats):
                for server in servers:
                    runs[server.name].append(ask(server, script, seconds))
        for server in servers:
            for key in runs[server.name][0]:
                values = sorted(run[key] for run in runs[server.name])
                rows[server.name][key] = {
                    "min": values[0],
                    "median": statistics.median(values),
                    "max": values[-1],
                }
            rows[server.name]["peak_mib"] = server.peak_mib()
    finally:
        for server in servers:
            server.stop()
    return list(rows.values())


def targets(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_name = {row["server"]: row for row in rows}
    ours, peer = by_name["riverrun"], by_name["fastapi"]
    if "requests_per_s" not in ours or "requests_per_s" not in peer:
        ratio = p99 = None
    else:
        ratio = ours["requests_per_s"]["median"] / peer["requests_per_s"]["median"]
        p99 = ours["p99_ms"]["median"] / peer["p99_ms"]["median"]
    return [
        {
            "name": "requests per second over FastAPI's, at least",
            "value": ratio,
            "aim": 4.0,
            "ok": None if ratio is None else ratio >= 4.0,
        },
        {
            "name": "p99 latency over FastAPI's, at most",
            "value": p99,
            "aim": 1.0,
            "ok": None if p99 is None else p99 <= 1.0,
        },
    ]


def report(repeats: int, seconds: int) -> dict[str, Any]:
    rows = measure(repeats, seconds)
    versions = {"python": platform.python_version()}
    for package in ("riverrun", "uvicorn", "uvloop", "httptools", "msgspec", "numba", "fastapi", "pydantic"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "benchmark": "serving",
        "versions": versions,
        "machine": {"cpus": os.cpu_count(), "system": platform.system(), "processor": platform.machine()},
        "rows": rows,
        "targets": targets(rows),
    }


def show(result: dict[str, Any]) -> None:
    print(f"{'server':10} {'requests/s min, median, max':>32} {'p50 ms':>8} {'p99 ms':>8} {'CPU µs':>8} MiB")
    for row in result["rows"]:
        if "requests_per_s" not in row:
            print(f"{row['server']:10} {row['note']}")
            continue
        rates = "  ".join(f"{value:,.0f}" for value in row["requests_per_s"].values())
        middle = " ".join(f"{row[key]['median']:8.2f}" for key in ("p50_ms", "p99_ms", "cpu_us"))
        print(f"{row['server']:10} {rates:>32} {middle} {row['peak_mib']:.0f}")
    for target in result["targets"]:
        value = "-" if target["value"] is None else f"{target['value']:.2f}"
        verdict = {True: "met", False: "missed", None: "not measured"}[target["ok"]]
        print(f"{target['name']}: {value} (aim {target['aim']:g}): {verdict}")


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    args = parser.parse_args()
    result = report(repeats=3, seconds=2) if args.quick else report(repeats=5, seconds=5)
    print(json.dumps(result)) if args.json else show(result)


if __name__ == "__main__":
    main()
