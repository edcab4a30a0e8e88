"""A newcomer's way: init, backtest, up, produce, a prediction, the list of models; a trainer and a
redis-server that are killed meanwhile; Ctrl-C, and up again."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROWS = 3_000
INIT = "init rows.csv --model m --label late --ts at --label-ts known --id name -o riverrun.toml"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, e2e: Any) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("up")
    e2e.write_rows(folder / "rows.csv", ROWS)
    cli = e2e.Cli(folder, RIVERRUN__MODELS__M__SNAPSHOT__EVERY="300ms")
    yield cli
    cli.close()


@pytest.fixture(scope="module")
def configured(place: Any) -> Any:
    done = place.run(*INIT.split())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return place


@pytest.fixture(scope="module")
def up(configured: Any) -> Iterator[Any]:
    process = configured.start("up", "--port", "0")
    lines = []
    for line in process.popen.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("ask: "):
            break
    process.told = dict(line.split(": ", 1) for line in lines)
    yield process
    if process.popen.poll() is None:
        assert process.end(signal.SIGINT) == 130


def learned(cli: Any) -> int:
    done = cli.run("models", "show", "m", "--json")
    return json.loads(done.stdout)["counts"]["learned"] if done.returncode == 0 else 0


def predict(base: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{base}/v1/models/m/predict",
        json.dumps({"id": "e", "features": {"x": 3.0, "color": "red"}}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def test_init_writes_a_configuration_that_runs(configured: Any) -> None:
    report = configured.json("backtest", "rows.csv")
    assert (report["rows"], report["events"], report["examples"]) == (ROWS, ROWS, ROWS)
    assert report["metrics"]["accuracy"] > report["baselines"]["majority"] + 0.2


def test_up_says_where_it_is_and_others_find_it(configured: Any, up: Any, e2e: Any) -> None:
    folder = configured.folder / "riverrun-data"
    assert up.told["log and store"] == f"embedded, kept in {folder}"
    assert up.told["send data"] == "riverrun produce FILE"
    assert stat.S_IMODE((folder / "running.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    done = configured.run("produce", "rows.csv")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"m: {ROWS:,} events, {ROWS:,} labels\n", "")
    e2e.until(lambda: learned(configured) == ROWS, "everything learned", process=up)
    told = predict(up.told["predictor"])
    assert told["predictions"][0]["label"] is True
    (row,) = configured.json("models", "list")
    assert set(row) == {"model", "version", "role", "lineage", "created_at", "trained_through", "metrics"}
    assert (row["model"], row["role"]) == ("m", "champion")
    doctor = configured.json("doctor")
    assert [c["name"] for c in doctor["checks"] if not c["ok"]] == []
    assert f"{up.told['predictor']}/readyz 200" in str(doctor)


def test_up_is_alone_in_its_folder(configured: Any, up: Any) -> None:
    done = configured.run("up", "--port", "0")
    assert done.returncode == 1
    assert f"`riverrun up` runs on {configured.folder / 'riverrun-data'} already" in done.stderr


def test_the_rules_hold_from_other_folders_too(configured: Any, up: Any, e2e: Any, tmp_path: Path) -> None:
    elsewhere = e2e.Cli(tmp_path)
    config = str(configured.folder / "riverrun.toml")
    assert len(elsewhere.json("models", "list", "-c", config)) == 1
    data = str(configured.folder / "riverrun-data")
    (tmp_path / "riverrun.toml").write_text(e2e.MODEL)
    assert elsewhere.run("models", "list").returncode == 1
    assert len(elsewhere.json("models", "list", "--data", data)) == 1
    assert elsewhere.run("models", "list", RIVERRUN_DATA=data).returncode == 0


def test_promote_and_rollback_with_nothing_to_change_to(configured: Any, up: Any) -> None:
    promote = configured.run("models", "promote", "m", "--json")
    assert promote.returncode == 1
    told = json.loads(promote.stdout)
    assert told["ok"] is False
    assert promote.stderr == f"error: model m: {told['detail']}\n"
    rollback = configured.run("models", "rollback", "m")
    assert (rollback.returncode, rollback.stdout) == (1, "")
    assert "no champion before" in rollback.stderr


def trainer_pid(cli: Any) -> int:
    return int(cli.json("models", "show", "m")["owner"]["name"].split("-")[-2])


def test_a_killed_trainer_recovers_and_goes_on(configured: Any, up: Any, e2e: Any) -> None:
    before = learned(configured)
    first = trainer_pid(configured)
    os.kill(first, signal.SIGKILL)
    up.says("the trainer was killed: started again")
    e2e.write_rows(configured.folder / "more.csv", 500, "more")
    assert configured.run("produce", "more.csv").returncode == 0
    e2e.until(lambda: learned(configured) == before + 500, "the trainer goes on", process=up)
    assert trainer_pid(configured) != first


def test_a_killed_redis_comes_back_with_its_data(configured: Any, up: Any, e2e: Any) -> None:
    before = learned(configured)
    log = (configured.folder / "riverrun-data" / "redis.log").read_text()
    os.kill(int(log.splitlines()[-1].split(":")[0]), signal.SIGKILL)
    e2e.until(lambda: learned(configured) == before, "the store is back", process=up)
    e2e.write_rows(configured.folder / "again.csv", 500, "again")
    assert configured.run("produce", "again.csv").returncode == 0
    e2e.until(lambda: learned(configured) == before + 500, "learning goes on", process=up)
    assert predict(up.told["predictor"])["predictions"][0]["label"] is True


def test_ctrl_c_ends_everything_and_up_goes_on_where_it_was(configured: Any, up: Any, e2e: Any) -> None:
    before = learned(configured)
    children = [trainer_pid(configured)]
    assert up.end(signal.SIGINT) == 130
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert "Traceback" not in up.errors()
    assert configured.run("models", "list").returncode == 1  # nothing runs
    again = configured.start("up", "--port", "0")
    e2e.until(lambda: learned(configured) == before, "what was learned", process=again)
    counters = configured.json("models", "show", "m")
    assert counters["counts"]["events"] >= before
    assert again.end(signal.SIGTERM) == 0


def test_up_ends_with_the_last_words_of_a_child_that_failed(make_cli: Callable[..., Any], e2e: Any) -> None:
    cli = make_cli()
    (cli.folder / "riverrun.toml").write_text(e2e.MODEL)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = cli.run("up", "--port", "0", RIVERRUN__TRAINER__METRICS_PORT=str(port))
    assert done.returncode == 1
    assert "the trainer ended with status 2; its last words:" in done.stderr
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
