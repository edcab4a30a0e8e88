"""Word of a running `riverrun up`: found while it lives, and only then."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import NothingRuns, RunsAlready, announced, data_folder, look, with_running
from core.config import Config

TOLD = {"log": "unix:///tmp/a b", "store": 'unix:///tmp/"é', "predictor": "http://127.0.0.1:1"}


def test_it_is_found_while_it_lasts(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert look(folder) == {}
    with announced(folder) as announcement:
        assert look(folder) == {}  # not yet
        announcement.tell({"log": "x" * 500})
        announcement.tell(TOLD)
        assert look(folder) == look(folder) == TOLD
        assert stat.S_IMODE((folder / "running.toml").stat().st_mode) == 0o600
        with pytest.raises(RunsAlready, match=str(folder)), announced(folder):
            pass
        assert look(folder) == TOLD
    assert look(folder) == {}
    with announced(folder) as announcement:
        announcement.tell(TOLD)
        assert look(folder) == TOLD


def test_word_of_one_that_was_killed_does_not_count(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom cli.running import announced\n"
        "with announced(Path(sys.argv[1])) as announcement:\n"
        "    announcement.tell({'log': 'x', 'store': 'y'})\n    os._exit(9)\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": root}, check=False
    )
    assert done.returncode == 9
    assert b"log" in (tmp_path / "running.toml").read_bytes()
    assert look(tmp_path) == {}


def test_what_is_embedded_is_taken_from_it(tmp_path: Path) -> None:
    config_path = tmp_path / "riverrun.toml"
    embedded = Config()
    mixed = Config.model_validate({"log": {"url": "kafka://k:9092", "prefix": "p"}})
    outside = Config.model_validate({"log": {"url": "kafka://k:9092"}, "store": {"url": "redis://r"}})
    for config, keys in ((embedded, "log.url and store.url are"), (mixed, "store.url is")):
        with pytest.raises(NothingRuns, match=keys):
            with_running(config, config_path, None)
    assert with_running(outside, config_path, None) is outside
    with announced(tmp_path / "riverrun-data") as announcement:
        announcement.tell(TOLD)
        found = with_running(embedded, config_path, None)
        assert (found.log.url, found.store.url) == (TOLD["log"], TOLD["store"])
        found = with_running(mixed, config_path, None)
        assert (found.log.url, found.log.prefix, found.store.url) == ("kafka://k:9092", "p", TOLD["store"])
        with pytest.raises(NothingRuns):
            with_running(embedded, config_path, tmp_path / "other")


def test_the_folder_lies_beside_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_folder(None, None) == tmp_path / "riverrun-data"
    assert data_folder(Path("conf/r.toml"), None) == tmp_path / "conf" / "riverrun-data"
    assert data_folder(Path("conf/r.toml"), Path("d")) == Path("d")
