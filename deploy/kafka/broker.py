#!/usr/bin/env python3
"""A local one-node Kafka broker (KRaft) for tests and demonstrations: real, on the loopback only.

    python3 deploy/kafka/broker.py up [--port 9092]    fetch the jars, start, wait, print the log's url
    python3 deploy/kafka/broker.py down                end it (its data stays)

Needs Java 17 or newer, and Maven for the first start. Uses nothing but the standard library.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE.parents[1] / ".run" / "kafka"
HOST = "127.0.0.1"
MAIN = "kafka.Kafka"
START_S = 60.0
STOP_S = 30.0
FREE_S = 3.0

# Runs the command behind it, and ends it when standard input closes: a broker tied to its starter ends
# with it however the starter dies.
TIED = 'exec 3<&0; "$@" 3<&- & c=$!; { read -r _ <&3; kill $c; } & wait $c; s=$?; kill $!; exit $s'

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={host}:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""


class BrokerError(RuntimeError):
    """The broker cannot be fetched, started or ended; the message says why."""


def fetch_libs(libs: Path = HOME / "libs") -> Path:
    """The folder with Kafka's jars; Maven fetches them the first time."""
    done = libs / ".complete"
    if done.exists() and any(libs.glob("kafka_*.jar")):
        return libs
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError("Maven (mvn) is needed to fetch Kafka: on Debian, apt-get install maven")
    libs.mkdir(parents=True, exist_ok=True)
    cache = libs.parent / "maven"
    ran = subprocess.run(  # noqa: S603  # our own arguments
        [
            maven,
            "-B",
            "-q",
            "-f",
            str(HERE / "pom.xml"),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={libs}",
            f"-Dmaven.repo.local={cache}",  # nothing is written outside the project
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if ran.returncode != 0:
        raise BrokerError(f"Maven could not fetch Kafka:\n{(ran.stdout + ran.stderr)[-2000:]}")
    done.touch()
    shutil.rmtree(cache, ignore_errors=True)
    return libs


def cluster_id() -> str:
    """A new cluster id as Kafka writes them: a random UUID in unpadded URL-safe base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # it would read as an option
            return text


def command_line(pid: int) -> str:
    """The command line of a running process, empty where there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    tool = shutil.which("ps")
    if Path("/proc/self").exists() or tool is None:
        return ""
    shown = subprocess.run(  # noqa: S603  # our own arguments
        [tool, "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_free(port: int) -> None:
    """Returns once the port can be listened on. Raises BrokerError where somebody keeps it; a broker that
    was killed just now gives it back in a moment."""
    deadline = time.monotonic() + FREE_S
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise BrokerError(f"port {port} on {HOST} is taken ({error.strerror})") from None
        time.sleep(0.05)


class Broker:
    """One broker whose data, settings and log lie in `folder`. Starting it again on the same folder finds
    its topics again, on the same port unless another is asked for (0: any free one)."""

    def __init__(self, folder: Path, libs: Path, port: int = 0, java: tuple[str, ...] = ()) -> None:
        self.folder = folder.resolve()
        self.libs = libs.resolve()
        self._java = java  # more options of the virtual machine
        self._settings = self.folder / "server.properties"
        self._pid_file = self.folder / "broker.pid"
        self._log = self.folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        kept = self._kept_ports()
        self.port = port or (kept[0] if kept else free_port())
        # The controller's address is part of the formatted storage, so it never changes.
        self.controller_port = kept[1] if kept else free_port()

    @property
    def url(self) -> str:
        return f"kafka://{HOST}:{self.port}"

    def start(self, tied: bool = False) -> None:
        """Starts the broker and waits until it answers; does nothing where it runs already. `tied`: it
        ends with this process, however that ends."""
        if self.pid() is not None:
            self.port = (self._kept_ports() or (self.port, 0))[0]
            self._wait_ready()
            return
        java = shutil.which("java")
        if java is None:
            raise BrokerError("Java 17 or newer is needed: on Debian, apt-get install default-jre-headless")
        for port in (self.port, self.controller_port):
            wait_free(port)
        self._format(java)
        command = [
            java,
            "-Xms256m",
            "-Xmx512m",
            *self._java,
            *self._java_options(),
            MAIN,
            str(self._settings),
        ]
        if tied:
            command = ["sh", "-c", TIED, "sh", *command]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own arguments
                command,
                stdin=subprocess.PIPE if tied else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C in the terminal is for the program, not for the broker
            )
        self._pid_file.write_text(str(self._process.pid))
        self._wait_ready()

    def stop(self, sign: int = signal.SIGTERM) -> bool:
        """Ends the broker (SIGKILL: as a crash would); False where none ran."""
        pid = self.pid()
        if pid is None:
            self._pid_file.unlink(missing_ok=True)
            return False
        if sign == signal.SIGTERM and self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        else:
            os.killpg(pid, sign)
        deadline = time.monotonic() + STOP_S
        while self.pid() is not None:
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                deadline = time.monotonic() + STOP_S
            time.sleep(0.05)
        if self._process is not None:
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None
        self._pid_file.unlink(missing_ok=True)
        return True

    def pid(self) -> int | None:
        """The running broker's process group, or None."""
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None
        if self._process is not None and self._process.pid == pid:
            return pid if self._process.poll() is None else None
        # Someone else started it: a number alone may meanwhile belong to another program.
        command = command_line(pid)
        return pid if MAIN in command and str(self._settings) in command else None

    def _kept_ports(self) -> tuple[int, int] | None:
        try:
            lines = dict(
                line.split("=", 1) for line in self._settings.read_text().splitlines() if "=" in line
            )
            first, second = lines["listeners"].split(",")
            return int(first.rpartition(":")[2]), int(second.rpartition(":")[2])
        except (OSError, KeyError, ValueError):
            return None

    def _format(self, java: str) -> None:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        self._settings.write_text(
            SETTINGS.format(host=HOST, port=self.port, controller_port=self.controller_port, data=data)
        )
        if (data / "meta.properties").exists():
            return
        tool = [java, "-XX:TieredStopAtLevel=1", *self._java_options(), "kafka.tools.StorageTool"]
        done = subprocess.run(  # noqa: S603  # our own arguments
            [*tool, "format", "--standalone", "-t", cluster_id(), "-c", str(self._settings)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BrokerError(f"Kafka's storage cannot be made in {data}:\n{done.stderr[-2000:]}")

    def _java_options(self) -> list[str]:
        return ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{self.libs}/*"]

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_S
        while not answers(self.port):
            if self.pid() is None or time.monotonic() > deadline:
                tail = self._log.read_bytes()[-2000:].decode(errors="replace") if self._log.exists() else ""
                self.stop()
                raise BrokerError(f"the broker on port {self.port} does not start:\n{tail}")
            time.sleep(0.1)


def answers(port: int) -> bool:
    """Whether a broker answers Kafka's ApiVersions request (version 0) on this port."""
    body = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((HOST, port), timeout=2.0) as link:
            link.sendall(struct.pack(">i", len(body)) + body)
            head = b""
            while len(head) < 10:
                part = link.recv(10 - len(head))
                if not part:
                    return False
                head += part
    except OSError:
        return False
    _, correlation, code = struct.unpack(">iih", head)
    return (correlation, code) == (1, 0)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A local Kafka broker for tests and demonstrations.")
    parser.add_argument("command", choices=["up", "down", "fetch"])
    parser.add_argument("--port", type=int, default=9092, help="where it listens on the loopback")
    parser.add_argument("--folder", type=Path, default=HOME, help="where its data and settings lie")
    given = parser.parse_args(arguments)
    try:
        if given.command == "fetch":
            fetch_libs()
            return 0
        if given.command == "up":
            broker = Broker(given.folder, fetch_libs(), given.port)
            broker.start()
            print(broker.url)  # noqa: T201  # the command's result
            return 0
        Broker(given.folder, HOME / "libs", given.port).stop()
        return 0
    except BrokerError as error:
        print(f"kafka: {error}", file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
