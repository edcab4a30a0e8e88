"""Importing does no work: checked in fresh processes, under an audit hook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
    "targets"
]["wheel"]["packages"]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__main__.py"
)

# Imports the modules named on standard input and writes what that did to the file named. Compiled kernels
# look whether their cache folder can be written to when they are defined; that folder alone is left out.
WATCH = r"""
import importlib, json, logging, os, signal, sys, threading

done = []
current = ""
watching = True
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
REFUSED = ("open", "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.mkdir",
           "os.remove", "os.rename", "os.rmdir", "shutil.", "tempfile.", "signal.")
FREE = (os.devnull, os.environ["NUMBA_CACHE_DIR"])

def watch(event, arguments):
    if not watching or not event.startswith(REFUSED) or str(arguments[0]).startswith(FREE):
        return
    if event != "open" or arguments[2] & WRITES:
        done.append([current, f"{event} {arguments[0]!r}"])

def start(thread, start=threading.Thread.start):
    done.append([current, f"thread {thread.name}"])
    start(thread)

threading.Thread.start = start
names = json.load(sys.stdin)
handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
sys.addaudithook(watch)
missing = []
failed = {}
for current in names:
    try:
        module = importlib.import_module(current)
    except Exception as error:
        failed[current] = repr(error)
        continue
    missing += [f"{current}.{name}" for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
watching = False
from prometheus_client import REGISTRY
report = {
    "done": done,
    "failed": failed,
    "missing": missing,
    "threads": [thread.name for thread in threading.enumerate()],
    "log_handlers": [str(handler) for handler in logging.getLogger().handlers],
    "signals": [number for number, handler in handlers.items() if signal.getsignal(number) is not handler],
    "metrics": [metric.name for metric in REGISTRY.collect() if metric.name.startswith("riverrun")],
    "modules": sorted({name.split(".")[0] for name in sys.modules}),
}
with open(sys.argv[1], "w") as file:
    json.dump(report, file)
"""


def imported(names: list[str], folder: Path, cwd: Path = ROOT) -> tuple[dict[str, Any], str]:
    """The report of a fresh process that imported these modules, and all that it printed."""
    ran = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", WATCH, str(folder / "report")],
        input=json.dumps(names),
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "kernels")},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads((folder / "report").read_text()), ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    return imported(MODULES, tmp_path_factory.mktemp("everything"))


def test_every_module_can_be_imported(everything: tuple[dict[str, Any], str]) -> None:
    assert everything[0]["failed"] == {}
    assert set(PACKAGES) <= set(everything[0]["modules"])


def test_importing_writes_nothing_and_opens_no_connection(everything: tuple[dict[str, Any], str]) -> None:
    assert everything[0]["done"] == []


def test_importing_prints_nothing(everything: tuple[dict[str, Any], str]) -> None:
    assert everything[1] == ""


def test_importing_starts_no_thread(everything: tuple[dict[str, Any], str]) -> None:
    assert everything[0]["threads"] == ["MainThread"]


def test_importing_sets_up_no_logging_signals_or_metrics(everything: tuple[dict[str, Any], str]) -> None:
    report = everything[0]
    assert report["log_handlers"] == []
    assert report["signals"] == []
    assert report["metrics"] == []


def test_the_names_that_modules_export_exist(everything: tuple[dict[str, Any], str]) -> None:
    assert everything[0]["missing"] == []


def test_the_command_line_starts_without_the_heavy_libraries(tmp_path: Path) -> None:
    report, printed = imported(["cli.main"], tmp_path)
    assert report["failed"] == {}
    assert printed == ""
    heavy = {"river", "numba", "scipy", "torch", "pyarrow", "confluent_kafka"}
    assert heavy & set(report["modules"]) == set()


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("open({path!r}, 'w').close()", "open"),
        ("import socket; socket.socket().close()", "socket.__new__"),
        (
            "import threading; t = threading.Thread(target=int); t.start(); t.join()",
            "thread ",
        ),
        ("import os; os.mkdir({path!r})", "os.mkdir"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)", "signals"),
        ("import logging; logging.basicConfig()", "log_handlers"),
        ("import threading; threading.Timer(0.5, int).start()", "threads"),
        ("from prometheus_client import Counter; Counter('riverrun_x', 'x')", "metrics"),
        ("__all__ = ['gone']", "missing"),
        ("print('hello')", "printed"),
    ],
)
def test_the_watch_sees_what_a_module_does(code: str, seen: str, tmp_path: Path) -> None:
    (tmp_path / "busy_module.py").write_text(code.format(path=str(tmp_path / "made")))
    report, printed = imported(["busy_module"], tmp_path, tmp_path)
    assert report["failed"] == {}
    if seen == "printed":
        assert printed == "hello\n"
    elif seen in {"signals", "log_handlers", "metrics", "missing"}:
        assert report[seen] != []
    elif seen == "threads":
        assert len(report["threads"]) == 2
    else:
        assert any(what.startswith(seen) for _, what in report["done"])
