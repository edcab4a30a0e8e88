"""A real redis-server with the settings and the password that docker-compose.yml gives it."""

from __future__ import annotations

import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import yaml
from redis.backoff import NoBackoff
from redis.retry import Retry

from cli.embedded_redis import find_redis_server
from core.records import Lane, Turn
from core.rollout import Assignment, Rollout
from snapshots.open_store import open_store
from snapshots.store import Snapshot

ROOT = Path(__file__).parents[2]


def make_secrets(folder: Path) -> None:
    subprocess.run(["make", "secrets", f"SECRETS={folder}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compose") / "secrets"
    make_secrets(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def port(secrets: Path, data: Path) -> Iterator[int]:
    """A server started with the Compose file's own command; only paths, address and port are ours."""
    command = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["redis"]["command"]
    assert command[0] == "redis-server"
    replaced = {
        "/data": str(data),
        "redis-server": str(find_redis_server()),
        "/etc/redis/redis.conf": str(ROOT / "deploy/compose/redis.conf"),
        "/run/secrets/redis_users.conf": str(secrets / "redis_users.conf"),
    }
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = int(probe.getsockname()[1])
    ours = ["--bind", "127.0.0.1", "--port", str(free)]
    with (data / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*(replaced.get(part, part) for part in command), *ours],
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 15
        while True:
            try:
                socket.create_connection(("127.0.0.1", free), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, (data / "server.log").read_text()
                assert time.monotonic() < deadline, (data / "server.log").read_text()
                time.sleep(0.02)
        yield free
    finally:
        server.terminate()
        server.wait(20)


def password_of(secrets: Path) -> str:
    """The store's password, as Redis and as riverrun get it."""
    lines = (secrets / "redis_users.conf").read_text().splitlines()
    assert lines[0] == "user default off"
    user, name, on, password, *rules = lines[1].split()
    assert (user, name, on, password[0]) == ("user", "riverrun", "on", ">")
    assert rules == [
        "~riverrun:*",
        "resetchannels",
        "&riverrun:*",
        "+@all",
        "-@scripting",
        "-@dangerous",
        "+config|get",
    ]
    assert (secrets / "store_url").read_text() == f"redis://riverrun:{password[1:]}@redis:6379/0\n"
    return password[1:]


@pytest.fixture
def url(port: int, secrets: Path) -> str:
    return f"redis://riverrun:{password_of(secrets)}@127.0.0.1:{port}/0"


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, decode_responses=True) as connection:
        yield connection


@pytest.mark.parametrize("user", [None, "default", "riverrun"])
@pytest.mark.parametrize("password", [None, "guess"])
def test_without_the_password_nothing_is_answered(port: int, user: str | None, password: str | None) -> None:
    at_once = Retry(NoBackoff(), 0)  # the client's default asks again for seconds
    with (
        redis.Redis(port=port, username=user, password=password, retry=at_once) as nobody,
        pytest.raises(redis.AuthenticationError),
    ):
        nobody.ping()


def test_the_account_suffices_for_everything_the_store_does(url: str) -> None:
    store = open_store(url)
    try:
        store.ping()
        epoch = store.ownership.acquire("flights", "me", 60)
        assert epoch is not None
        first = store.snapshots.publish(Snapshot("flights", 0, {"turn": 1}, {"fold": b"bytes"}), epoch)
        loaded = store.snapshots.load("flights", first)
        assert loaded.parts == {"fold": b"bytes"}
        wanted = Rollout(1, Assignment("a", first), reason="first")
        store.snapshots.set_rollout("flights", wanted, Rollout(), epoch)
        assert store.snapshots.rollout("flights") == wanted
        changes = store.snapshots.watch(["flights"], 0.1)
        assert next(changes) is not None
        changes.close()
        turn = Turn(1, {Lane("flights.events", 0): (0, 5)}, 1_385_000_000_000)
        store.journal.append("flights", turn, epoch)
        assert list(store.journal.read("flights", 0)) == [turn]
        store.journal.trim("flights", 1, epoch)
        store.commands.push("flights", {"id": "c1", "do": "pause"})
        assert len(store.commands.pending("flights")) == 1
        store.commands.done("flights", ["c1"])
        store.ownership.renew("flights", "me", epoch, 60)
        store.ownership.release("flights", "me", epoch)
        assert list(store.snapshots.models()) == ["flights"]
    finally:
        store.close()


@pytest.mark.parametrize(
    "command",
    ["FLUSHALL", "KEYS *", "SHUTDOWN", "CONFIG SET maxmemory 1", "ACL LIST", "EVAL return 0", "GET other",
     "SET riverrun 1", "PUBLISH other x", "REPLICAOF NO ONE"],
)  # fmt: skip
def test_the_account_can_do_no_harm_outside_its_keys(client: redis.Redis, command: str) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command.split(maxsplit=1)[0:1], *command.split()[1:])


def test_it_keeps_everything_in_an_append_only_file_and_never_evicts(client: redis.Redis, data: Path) -> None:
    expected = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory": str(512 * 1024 * 1024),
        "maxmemory-policy": "noeviction",
        "protected-mode": "yes",
    }
    assert {name: client.config_get(name)[name] for name in expected} == expected
    assert list(
        (data / "appendonlydir").glob("*.aof*") if (data / "appendonlydir").exists() else data.glob("*.aof")
    )


def test_the_health_check_asks_with_the_password(port: int, secrets: Path) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    kind, line = services["redis"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    # Compose writes a dollar sign as two; redis-cli stands in as a command that checks what it is given.
    line = line.replace("$$", "$").replace("/run/secrets", str(secrets))
    password = password_of(secrets)
    asks = (
        f'redis-cli() {{ [ "$REDISCLI_AUTH/$*" = "{password}/--user riverrun ping" ] && echo "$ANSWER"; }}\n'
    )
    for answer, healthy in (
        ("PONG", True),
        ("LOADING Redis is loading the dataset in memory", False),
        ("", False),
    ):
        ran = subprocess.run(
            ["bash", "-c", asks + line], env={"PATH": "/usr/bin:/bin", "ANSWER": answer}, check=False
        )
        assert (ran.returncode == 0) is healthy


def test_secrets_are_random_private_and_made_once(secrets: Path, tmp_path: Path) -> None:
    names = {"redis_users.conf", "store_url", "admin_token"}
    assert {path.name for path in secrets.iterdir()} == names
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    # Containers read them under users of their own; the folder keeps the host's other users out.
    assert {stat.S_IMODE((secrets / name).stat().st_mode) for name in names} == {0o444}
    before = {name: (secrets / name).read_text() for name in names}
    assert len(password_of(secrets)) == 64
    assert password_of(secrets) in before["store_url"]
    assert before["admin_token"].strip() != password_of(secrets)
    make_secrets(secrets)
    assert {name: (secrets / name).read_text() for name in names} == before, "a password in use stays"
    make_secrets(tmp_path / "other")
    assert password_of(tmp_path / "other") != password_of(secrets)
