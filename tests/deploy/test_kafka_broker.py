"""The local broker's commands: up, up again, down, down again; and what they say when they cannot."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stream.log.open_log import open_log

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "kafka" / "broker.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.kafka
def test_up_and_down_can_be_repeated(broker_module: ModuleType, kafka_libs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    where = ["--folder", str(folder), "--port", str(broker_module.free_port())]
    try:
        first = run("up", *where)
        assert (first.returncode, first.stderr) == (0, "")
        url = first.stdout.strip()
        assert url == f"kafka://127.0.0.1:{where[-1]}"
        log = open_log(url)
        log.create("kept")
        log.close()
        again = run("up", "--folder", str(folder), "--port", "1")  # it runs already, on the port it has
        assert (again.returncode, again.stdout.strip()) == (0, url)
    finally:
        down = run("down", *where)
    assert (down.returncode, down.stderr) == (0, "")
    assert not broker_module.answers(int(where[-1]))
    assert run("down", *where).returncode == 0


def test_the_pid_of_another_program_is_left_alone(broker_module: ModuleType, tmp_path: Path) -> None:
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    )
    try:
        (tmp_path / "broker.pid").write_text(str(bystander.pid))
        broker = broker_module.Broker(tmp_path, tmp_path)
        assert broker.pid() is None
        assert broker.stop() is False
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_taken_port_is_named(
    broker_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "FREE_S", 0.0)
    monkeypatch.setattr(broker_module.shutil, "which", lambda name: f"/bin/{name}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(broker_module.BrokerError, match=f"port {port} .* is taken"):
            broker_module.Broker(tmp_path, tmp_path, port).start()


def test_cluster_ids_are_unpadded_base64_of_16_bytes(broker_module: ModuleType) -> None:
    ids = {broker_module.cluster_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


def test_a_missing_maven_is_named(
    broker_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(broker_module.BrokerError, match="apt-get install maven"):
        broker_module.fetch_libs(tmp_path)
