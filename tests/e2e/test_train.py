"""A trainer that is killed, told to end, or loses its servers ends with what an undisturbed one learned."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.embedded_redis import EmbeddedRedis
from cli.file_events import FileEvents
from cli.load_config import load_config
from cli.produce import produce
from core.clock import SystemClock
from snapshots.open_store import open_store
from stream.log.open_log import open_log

ROWS = 4_000
pytestmark = pytest.mark.redis
Make = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, e2e: Any) -> Path:
    """A configuration whose turns are small, so that there are many to be killed in."""
    path = tmp_path_factory.mktemp("train")
    (path / "riverrun.toml").write_text(e2e.MODEL + "[trainer]\nmax_turn_records = 100\n")
    e2e.write_rows(path / "rows.csv", ROWS)
    return path


def urls(url: str) -> dict[str, str]:
    return {"RIVERRUN__LOG__URL": url, "RIVERRUN__STORE__URL": url}


def fill(log_url: str, folder: Path, limit: int | None = None) -> None:
    """Puts the file's records into the log, as `riverrun produce` does."""
    model = load_config(folder / "riverrun.toml", {}).models["m"]
    log = open_log(log_url)
    for topic in ("m.events", "m.labels"):
        log.create(topic)
    produce(log, FileEvents(folder / "rows.csv", "m", model, limit).chunks(), None, None, None, SystemClock())
    log.close()


def manifest(url: str) -> dict[str, Any]:
    """The newest version's, empty before there is one."""
    store = open_store(url)
    try:
        versions = store.snapshots.versions("m")
        return dict(store.snapshots.load("m", versions[-1], parts=()).manifest) if versions else {}
    finally:
        store.close()


def owner(url: str) -> str:
    """Which trainer owns the model."""
    store = open_store(url)
    try:
        return (store.ownership.owner("m") or ("",))[0]
    finally:
        store.close()


def learned(url: str) -> int:
    return int(manifest(url).get("counts", {}).get("learned", 0))


def outcome(url: str) -> dict[str, Any]:
    """What two trainers of the same records must agree on."""
    told = manifest(url)
    names = ("counts", "counters", "dead_letters", "offsets", "metrics", "baselines", "drift", "lineages")
    return json.loads(json.dumps({name: told[name] for name in names}, sort_keys=True))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def undisturbed(folder: Path, e2e: Any) -> Iterator[dict[str, Any]]:
    with EmbeddedRedis() as server:
        fill(server.url, folder)
        cli = e2e.Cli(folder, **urls(server.url))
        trainer = cli.start("train")
        e2e.until(lambda: learned(server.url) == ROWS, "everything learned", process=trainer)
        assert trainer.end(signal.SIGTERM) == 0
        version = manifest(server.url)["turn"]
        # Told to end, it left a last snapshot: the next one has nothing to replay.
        store = open_store(server.url)
        assert list(store.journal.read("m", version)) == []
        store.close()
        yield outcome(server.url)
        cli.close()


def test_killed_again_and_again_it_ends_as_if_it_never_was(
    folder: Path, redis_url: str, undisturbed: dict[str, Any], make_cli: Make, e2e: Any
) -> None:
    cli = make_cli(folder, **urls(redis_url), RIVERRUN__MODELS__M__SNAPSHOT__EVERY="100ms")
    producer = cli.start("produce", "rows.csv", "--rate", "2500")
    for wanted in (1, 800):
        trainer = cli.start("train")
        e2e.until(lambda n=wanted: learned(redis_url) >= n, f"{wanted} learned", process=trainer)
        assert learned(redis_url) < ROWS  # so it is in the middle of its work
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.popen.wait()
    last = cli.start("train")
    e2e.until(lambda: owner(redis_url).split("-")[-2:-1] == [str(last.pid)], "ownership", process=last)
    assert producer.popen.wait(30) == 0
    e2e.until(lambda: learned(redis_url) == ROWS, "everything learned", process=last)
    assert last.end(signal.SIGTERM) == 0
    found = outcome(redis_url)
    for same in ("counts", "counters", "offsets", "dead_letters"):
        assert found[same] == undisturbed[same]


def test_an_unknown_topic_ends_it_in_words(folder: Path, redis_url: str, make_cli: Make, e2e: Any) -> None:
    cli = make_cli(folder, **urls(redis_url))
    done = cli.run("train")
    assert done.returncode == 1
    assert "error: topic m.events does not exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_redis_that_is_killed_and_comes_back(
    folder: Path, make_cli: Make, e2e: Any, tmp_path: Path
) -> None:
    server = EmbeddedRedis(tmp_path / "redis").start()
    try:
        fill(server.url, folder, limit=2_000)
        cli = make_cli(folder, **urls(server.url))
        trainer = cli.start("train")
        e2e.until(lambda: learned(server.url) >= 1_000, "a start", process=trainer)
        os.kill(server.pid, signal.SIGKILL)
        trainer.says("trying again")
        server.start()
        fill(server.url, folder)  # the rest, and what was there already once more: duplicates are dropped
        e2e.until(lambda: learned(server.url) == ROWS, "everything learned", process=trainer)
        assert manifest(server.url)["counts"]["learned"] == ROWS
        assert trainer.end(signal.SIGTERM) == 0
    finally:
        server.close()


def test_commands_carried_out_by_a_running_trainer(
    folder: Path, redis_url: str, make_cli: Make, e2e: Any
) -> None:
    """No trainer: 1. A challenger born of a drift alarm is promoted, and rolled back again."""
    settings = {
        **urls(redis_url),
        "RIVERRUN__MODELS__M__DRIFT__DETECTORS": "[{page_hinkley = {threshold = 1.0}}]",
        "RIVERRUN__MODELS__M__DRIFT__COOLDOWN": "0",
        "RIVERRUN__MODELS__M__ROLLOUT__MIN_EXAMPLES": "1000000",
    }
    cli = make_cli(folder, **settings)
    fill(redis_url, folder)
    alone = cli.run("models", "promote", "m")
    assert alone.returncode == 1
    assert "no trainer owns it; start `riverrun train`" in alone.stderr
    trainer = cli.start("train")
    e2e.until(lambda: learned(redis_url) == ROWS, "everything learned", process=trainer)
    shadows = [row["lineage"] for row in cli.json("models", "list") if row["role"] == "shadow"]
    assert shadows, manifest(redis_url)["drift"]
    promoted = cli.json("models", "promote", "m", "--lineage", shadows[0])
    assert promoted["ok"] is True
    champions = lambda: [r["lineage"] for r in cli.json("models", "list") if r["role"] == "champion"]  # noqa: E731
    e2e.until(lambda: champions() == shadows[:1], "the new champion", process=trainer)
    back = cli.run("models", "rollback", "m")
    assert (back.returncode, back.stderr) == (0, "")
    e2e.until(lambda: champions() == ["L1"], "the old champion", process=trainer)
    assert trainer.end(signal.SIGTERM) == 0
