"""Every command's exit status and words, as a shell sees them: 0 done, 1 failed, 2 usage or configuration."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.main import main

Make = Callable[..., Any]
COMMANDS = ["backtest", "demo", "doctor", "init", "models", "produce", "serve", "train", "up"]
SUBCOMMANDS = ["list", "show", "promote", "rollback"]
NOWHERE = "redis://127.0.0.1:1/0"  # nobody listens on port 1


@pytest.fixture
def cli(make_cli: Make, e2e: Any, tmp_path: Path) -> Any:
    """A folder with a configuration and a small file."""
    (tmp_path / "riverrun.toml").write_text(e2e.MODEL)
    e2e.write_rows(tmp_path / "rows.csv", 50)
    return make_cli()


def test_help_of_every_command(cli: Any) -> None:
    told = cli.run("--help")
    assert told.returncode == 0
    assert all(f"  {name} " in told.stdout for name in COMMANDS)
    assert cli.run("--version").stdout.startswith("riverrun, version ")
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom cli.main import riverrun\n"
        "for words in sys.argv[1:]:\n"
        "    done = CliRunner().invoke(riverrun, [*words.split(), '--help'], prog_name='riverrun')\n"
        "    assert done.exit_code == 0, done.output\n"
        "    assert done.output.startswith(f'Usage: riverrun {words}'), done.output\n"
        "    assert len(done.output.splitlines()[2]) > 10, done.output\n"
    )
    names = [*COMMANDS, *(f"models {name}" for name in SUBCOMMANDS)]
    subprocess.run([sys.executable, "-c", code, *names], env=cli.environ, check=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Usage: riverrun"),
        (["nonsense"], "No such command"),
        (["produce"], "Missing argument"),
        (["produce", "rows.csv", "--rate", "1", "--speed", "1"], "--rate or --speed, not both"),
        (["produce", "rows.csv", "--rate", "0"], "--rate"),
        (["train", "--metrics-port", "99999"], "--metrics-port"),
        (["demo", "--events", "5"], "--events"),
        (["models", "promote"], "Missing argument"),
        (["backtest", "none.csv"], "none.csv: no such file"),
        (["backtest", "rows.csv", "-c", "none.toml"], "none.toml: no such file"),
        (["train", "-c", "none.toml"], "none.toml: no such file"),
        (["init", "none.csv", "--model", "m", "--label", "y"], "none.csv: no such file"),
        (["init", "rows.csv", "--model", "m", "--label", "y"], '"y"'),
        (["init", "rows.csv", "--model", "m", "--label", "late", "-o", "riverrun.toml"], "--force"),
    ],
)
def test_what_cannot_be_asked_for_is_2(
    cli: Any,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(cli.folder)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
    finally:
        signal.signal(signal.SIGTERM, before)
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    assert words in told.err


def test_the_shell_sees_the_same(cli: Any) -> None:
    done = cli.run("backtest", "none.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: none.csv: no such file")
    assert len(done.stderr.splitlines()) == 1


BAD = """
[log]
adress = "x"
[models.m]
task = "binar"
events = "e"
features = { x = "flot" }
[models.m.window]
count = 0
"""


@pytest.mark.parametrize("command", [["train"], ["serve"], ["up"], ["backtest", "rows.csv"], ["doctor"]])
def test_every_problem_of_a_configuration_is_told_with_its_path(cli: Any, command: list[str]) -> None:
    (cli.folder / "riverrun.toml").write_text(BAD)
    done = cli.run(*command, RIVERRUN__MODELS__M__REPLAY__CAPACITY="-1")
    assert done.returncode == (1 if command == ["doctor"] else 2)
    told = done.stdout if command == ["doctor"] else done.stderr
    for path in ("log.adress", "models.m.task", "models.m.features.x", "models.m.window.count", "CAPACITY"):
        assert path in told
    assert 'did you mean "binary"?' in told


def test_columns_that_a_file_lacks_are_named(cli: Any) -> None:
    (cli.folder / "rows.csv").write_text("at,x\n1,2\n")
    for command in ("backtest", "produce"):
        done = cli.run(command, "rows.csv")
        assert done.returncode == 2
        assert "color" in done.stderr
        assert "late" in done.stderr


def test_unknown_models_are_failures(cli: Any) -> None:
    for arguments in (["train", "--model", "n"], ["produce", "rows.csv", "--model", "n"]):
        done = cli.run(*arguments, RIVERRUN__LOG__URL="memory://", RIVERRUN__STORE__URL="memory://")
        assert done.returncode == 1
        assert 'no model "n"' in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["train"], ["serve"], ["produce", "rows.csv"], ["models", "list"], ["models", "promote", "m"]],
)
def test_without_up_what_is_embedded_is_not_there(cli: Any, arguments: list[str]) -> None:
    done = cli.run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no `riverrun up` runs on {cli.folder / 'riverrun-data'}" in done.stderr


def test_doctor_says_what_is_down(cli: Any) -> None:
    done = cli.run("doctor", "--json", RIVERRUN__SERVING__PORT="1")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["ok"] is False
    assert {c["name"]: c["ok"] for c in told["checks"]} == {
        "configuration": True, "log": False, "store": False, "predictor": False,
    }  # fmt: skip
    assert all(c["fix"] for c in told["checks"] if not c["ok"])
    down = cli.run("doctor", RIVERRUN__LOG__URL=NOWHERE, RIVERRUN__STORE__URL="redis://u:s3cret@127.0.0.1:1")
    assert down.returncode == 1
    assert "NO log: Redis at redis://127.0.0.1:1" in down.stdout
    assert "NO store" in down.stdout
    assert "s3cret" not in down.stdout + down.stderr


@pytest.mark.parametrize("log", [NOWHERE, "kafka://127.0.0.1:1"])
def test_produce_to_a_log_that_is_away_fails_in_words(cli: Any, log: str) -> None:
    done = cli.run("produce", "rows.csv", timeout_s=40, RIVERRUN__LOG__URL=log, RIVERRUN__STORE__URL=NOWHERE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_train_waits_for_a_store_that_is_away_and_says_so(cli: Any) -> None:
    trainer = cli.start("train", RIVERRUN__LOG__URL=NOWHERE, RIVERRUN__STORE__URL=NOWHERE)
    trainer.says("trying again")
    assert "127.0.0.1:1" in trainer.errors()
    assert trainer.end(signal.SIGTERM) == 0


@pytest.mark.redis
def test_a_taken_port_is_named(cli: Any, redis_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        urls = {"RIVERRUN__LOG__URL": redis_url, "RIVERRUN__STORE__URL": redis_url}
        serve = cli.run("serve", "--port", port, **urls)
        train = cli.run("train", "--metrics-port", port, **urls)
    for done in (serve, train):
        assert done.returncode == 2
        assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


@pytest.mark.redis
def test_interrupts_are_130_and_the_count_is_told(cli: Any, redis_url: str) -> None:
    urls = {"RIVERRUN__LOG__URL": redis_url, "RIVERRUN__STORE__URL": redis_url}
    serving = cli.start("serve", "--port", "0", **urls)
    producer = cli.start("produce", "rows.csv", "--rate", "5", "--json", **urls)
    serving.says("riverrun serve: http://127.0.0.1:")
    time.sleep(1.0)
    assert producer.end(signal.SIGINT) == 130
    told = json.loads(producer.popen.stdout.read())
    assert 0 < told["events"] < 50
    assert serving.end(signal.SIGINT) == 130


def test_progress_is_for_terminals(cli: Any) -> None:
    piped = cli.run("backtest", "rows.csv")
    assert piped.returncode == 0
    assert piped.stderr == ""
    assert "50 rows" in piped.stdout
    assert "\x1b" not in piped.stdout
    assert "█" not in piped.stdout
    shown = on_a_terminal(cli, ["backtest", "rows.csv", "--json"])
    assert "rows" in shown[1]
    assert json.loads(shown[0])["rows"] == 50
    assert set(json.loads(shown[0])) == {
        "rows", "events", "labels", "examples", "dead_letters", "metrics", "baselines", "drifts",
        "retrainings", "seconds", "events_per_s", "peak_rss_mb",
    }  # fmt: skip


def test_no_color_is_respected(cli: Any) -> None:
    _, coloured = on_a_terminal(cli, ["doctor"], both=True)
    _, plain = on_a_terminal(cli, ["doctor"], both=True, NO_COLOR="1")
    assert "\x1b[3" in coloured
    assert "\x1b[3" not in plain


def on_a_terminal(cli: Any, arguments: list[str], both: bool = False, **environ: str) -> tuple[str, str]:
    """Standard output, and what a terminal got: standard error, with `both` standard output too."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *arguments],
        cwd=cli.folder,
        env={**cli.environ, "TERM": "xterm-256color", **environ},
        stdin=subprocess.DEVNULL,
        stdout=theirs if both else subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    out, _ = process.communicate(timeout=30)
    return (out or b"").decode(), seen.decode()
