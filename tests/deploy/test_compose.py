"""docker-compose.yml against the rules that this project keeps for it. The file is read here as Compose reads
it: anchors and merges resolved. (Compose itself is not needed.)"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from core.config import Config

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
LONG_RUNNING = sorted(name for name, service in SERVICES.items() if service["restart"] != "no")
OURS = sorted(name for name, service in SERVICES.items() if service["image"].startswith("riverrun:"))
CONFIG = "/etc/riverrun/riverrun.toml"


def every_value(node: object, path: str = "") -> Iterator[tuple[str, str]]:
    """All scalars of the file with their paths."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from every_value(value, f"{path}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from every_value(value, f"{path}[{index}]")
    else:
        yield path, str(node)


def settings_of(name: str) -> dict[str, str]:
    """The environment of a service."""
    return dict(SERVICES[name].get("environment", {}))


def test_the_services_are_those_that_are_promised() -> None:
    assert set(SERVICES) == {"kafka", "topics", "redis", "trainer", "predictor-1", "predictor-2"}
    assert OURS == ["predictor-1", "predictor-2", "trainer"]
    assert set(LONG_RUNNING) == set(SERVICES) - {"topics"}


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_names_is_declared(name: str) -> None:
    service = SERVICES[name]
    assert set(service["networks"]) <= set(COMPOSE["networks"])
    assert set(service.get("depends_on", ())) <= set(SERVICES)
    for kind in ("configs", "secrets"):
        sources = {one if isinstance(one, str) else one["source"] for one in service.get(kind, [])}
        assert sources <= set(COMPOSE[kind])
    for volume in service.get("volumes", []):
        assert volume.split(":")[0] in COMPOSE["volumes"], "named volumes only: no folder of the host"


@pytest.mark.parametrize("name", SERVICES)
def test_a_dependency_waits_for_what_the_other_really_shows(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        expected = "service_healthy" if other in LONG_RUNNING else "service_completed_successfully"
        assert how == {"condition": expected}


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_published_beyond_the_loopback(name: str) -> None:
    service = SERVICES[name]
    assert "network_mode" not in service
    ports = service.get("ports", [])
    assert bool(ports) == name.startswith("predictor-")
    for port in ports:
        assert re.fullmatch(r"127\.0\.0\.1:\d+:8400", port)
        assert "outside" in service["networks"], "an internal network publishes nothing"


def test_kafka_redis_and_the_trainer_sit_on_the_internal_network_alone() -> None:
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    for name in ("kafka", "topics", "redis", "trainer"):
        assert SERVICES[name]["networks"] == ["inside"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_can_do_as_little_as_possible(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "devices", "pid", "ipc", "userns_mode", "extra_hosts"} & set(service)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"]), "a numeric user that is not root"
    for mount in service["tmpfs"]:
        assert re.search(r":mode=1777,size=\d+m$", mount), "writable, and bounded"
    limits = service["deploy"]["resources"]["limits"]
    assert set(limits) == {"cpus", "memory", "pids"}


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_a_long_running_service_has_a_health_check_and_comes_back(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    check = service["healthcheck"]
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)
    assert not check.get("disable")


@pytest.mark.parametrize("name", OURS)
def test_the_health_checks_of_riverrun_are_python_that_compiles(name: str) -> None:
    kind, python, flag, code = SERVICES[name]["healthcheck"]["test"]
    assert (kind, python, flag) == ("CMD", "python", "-c")
    compile(code, name, "exec")
    url = "127.0.0.1:8401/healthz" if name == "trainer" else "127.0.0.1:8400/readyz"
    assert f"http://{url}'" in code
    assert "timeout=" in code


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_held_by_digest_or_built_here(name: str) -> None:
    service = SERVICES[name]
    if name in OURS:
        assert service["build"] == "."
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        assert service["image"] == f"riverrun:{version}"
    else:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+(-[a-z]+)?@sha256:[0-9a-f]{64}", service["image"])


def test_passwords_come_from_files_and_have_no_default() -> None:
    for path, value in every_value(COMPOSE):
        assert "${" not in value, f"{path}: a value from the shell could carry a default"
        assert not re.search(r"redis(s)?://[^ ]*@", value), f"{path}: a url with a password"
        assert not re.search(r"requirepass|>[0-9a-f]{8}|masterauth", value), f"{path}: a password"
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())
    for name in SERVICES:
        for key, value in settings_of(name).items():
            if re.search(r"PASS|SECRET|TOKEN|URL", key):
                assert key.endswith("_FILE")
                assert value.startswith("/run/secrets/")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_holds_only_the_secrets_it_reads(name: str) -> None:
    held = {one if isinstance(one, str) else one["source"] for one in SERVICES[name].get("secrets", [])}
    expected = {"redis": {"redis_users"}, "trainer": {"store_url"}, "kafka": set(), "topics": set()}
    assert held == expected.get(name, {"store_url", "admin_token"})
    named = {Path(v).name for v in settings_of(name).values() if v.startswith("/run/secrets/")}
    assert named <= held


def test_secrets_are_files_that_git_and_the_image_leave_out() -> None:
    for secret in COMPOSE["secrets"].values():
        assert secret["file"].startswith("deploy/compose/secrets/")
    assert (ROOT / "deploy/compose/secrets/.gitignore").read_text().split() == ["*", "!.gitignore"]
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in lines if line and not line.startswith("#")) == "*"
    assert not [line for line in lines if line.startswith("!deploy")]


def test_the_files_that_compose_mounts_are_there() -> None:
    for config in COMPOSE["configs"].values():
        assert (ROOT / config["file"]).stat().st_size > 0


def test_the_example_configuration_is_valid_and_fits_the_compose_file() -> None:
    with (ROOT / COMPOSE["configs"]["riverrun"]["file"]).open("rb") as file:
        raw = tomllib.load(file)
    config = Config.model_validate(raw)
    assert config.log.url == "kafka://kafka:9092"
    assert "store" not in raw, "its url holds the password: it comes from the secret"
    assert config.serving.admin_token_file == "/run/secrets/admin_token"
    assert config.trainer.metrics_port == 8401
    assert config.serving.port == 8400
    topics = re.findall(r"^make_topic (\S+)", (ROOT / "deploy/compose/topics.sh").read_text(), re.MULTILINE)
    needed = {f"{config.log.prefix}.{kind}" for kind in ("predictions", "alerts", "deadletter")}
    for model in config.models.values():
        needed |= {model.events, model.labels or model.events}
    assert needed == set(topics)
    assert len(topics) == len(set(topics))


def test_the_topics_script_asks_kafka_for_every_topic(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    tool = tmp_path / "kafka-topics.sh"
    tool.write_text(f'#!/bin/sh\necho "$*" >> {recorded}\n')
    tool.chmod(0o755)
    script = (ROOT / "deploy/compose/topics.sh").read_text().replace("/opt/kafka/bin/", f"{tmp_path}/")
    bash = shutil.which("bash")
    assert bash is not None
    environment = {"BROKER": "kafka:9092", "PATH": "/usr/bin:/bin"}
    subprocess.run([bash, "-c", script], check=True, env=environment)
    calls = recorded.read_text().splitlines()
    assert len(calls) == 5
    for call in calls:
        assert re.fullmatch(
            r"--bootstrap-server kafka:9092 --create --if-not-exists --topic [a-z.]+ --partitions \d+ "
            r"--replication-factor 1 --config retention\.ms=\d+",
            call,
        )
    tool.write_text("#!/bin/sh\nexit 1\n")
    failed = subprocess.run([bash, "-c", script], check=False, env=environment)
    assert failed.returncode != 0, "a topic that cannot be made keeps the trainer from starting"


@pytest.mark.parametrize("name", OURS)
def test_the_commands_are_ones_that_riverrun_takes(name: str) -> None:
    from cli.main import riverrun

    role, *arguments = [str(part) for part in SERVICES[name]["command"]]
    assert CONFIG in arguments
    arguments = [str(ROOT / "deploy/compose/riverrun.toml") if part == CONFIG else part for part in arguments]
    with click.Context(riverrun, info_name="riverrun") as parent:
        command = riverrun.get_command(parent, role)
        assert command is not None, f"riverrun has no command {role}"
        context = command.make_context(role, arguments, parent=parent)  # raises where an option is unknown
    given = [value for value in context.params.values() if value is not None]
    assert str(ROOT / "deploy/compose/riverrun.toml") in {str(value) for value in given}
    if role == "serve":
        assert "0.0.0.0" in given


def test_kafka_settings_keep_the_controller_inside_and_make_no_topic_by_accident() -> None:
    lines = (ROOT / "deploy/compose/kafka.properties").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert settings["process.roles"] == "broker,controller"
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["advertised.listeners"] == "PLAINTEXT://kafka:9092"
    assert "CONTROLLER://localhost:9093" in settings["listeners"].split(",")
    assert settings["controller.quorum.voters"] == "1@localhost:9093"
    assert settings["log.dirs"] == SERVICES["kafka"]["volumes"][0].partition(":")[2]
