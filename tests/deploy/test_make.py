"""The Makefile and .ci/run with stand-ins for Python and pip: which steps run, when, and what is said when
one cannot. Each test works in a folder of its own with a copy of the Makefile."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = [
    "sh",
    "bash",
    "make",
    "awk",
    "rm",
    "touch",
    "mkdir",
    "cat",
    "chmod",
    "env",
    "dirname",
    "id",
    "timeout",
]

# A Python that notes its calls and makes environments whose Python notes theirs. $FAIL: fails on that word.
PYTHON = """#!/bin/sh
case "$*" in *"${FAIL:-no such word}"*) exit 1 ;; esac
[ "$1" = --version ] && { echo "Python 3.13.1"; exit 0; }
[ "$1" = -c ] && exit 0
echo "$*" >> "$CALLS"
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin"
    for tool in python ruff mypy lint-imports riverrun; do
        echo '#!/bin/sh
            call="'$tool' $*"
            case "$call" in *"${FAIL:-no such word}"*) exit 7 ;; esac
            echo "$call" >> "$CALLS"' > "$3/bin/$tool"
        chmod +x "$3/bin/$tool"
    done
fi
"""

INSTALL = "python -m pip install --quiet --no-input --no-cache-dir --disable-pip-version-check"
BASE = ["-m venv .venv", f"{INSTALL} --require-hashes -r requirements/base.txt"]
DEV = [f"{INSTALL} --require-hashes -r requirements/dev.txt"]
RIVERRUN = [f"{INSTALL} --no-deps --no-build-isolation -e ."]
STEPS = ["ruff check", "ruff format --check", "mypy", "lint-imports", "python -m pytest"]


class Project:
    """A folder to run make in, with nothing on PATH but what is put there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.path = folder / "bin"
        self.calls_file = folder / "calls"
        (self.folder / "requirements").mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "requirements/base.txt", "requirements/dev.txt"):
            shutil.copy(ROOT / name, self.folder / name)
        self.path.mkdir()
        for name in TOOLS:
            found = shutil.which(name)
            assert found is not None
            (self.path / name).symlink_to(found)

    def add_python(self, name: str = "python3", text: str = PYTHON) -> None:
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o755)

    def run(self, *command: str, fail: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.path), "CALLS": str(self.calls_file)}
        if fail:
            environment["FAIL"] = fail
        return subprocess.run(
            list(command), cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )

    def make(self, *arguments: str, fail: str | None = None) -> subprocess.CompletedProcess[str]:
        return self.run("make", *arguments, fail=fail)

    def calls(self) -> list[str]:
        """The calls since the last look."""
        found = (
            [line.strip() for line in self.calls_file.read_text().splitlines()]
            if self.calls_file.exists()
            else []
        )
        self.calls_file.unlink(missing_ok=True)
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_environment_is_made_once(project: Project) -> None:
    project.add_python()
    ran = project.make("demo", "ARGS=--events 5")
    assert ran.returncode == 0, ran.stderr
    assert project.calls() == [*BASE, *RIVERRUN, "riverrun demo --events 5"]
    assert project.make("demo").returncode == 0
    assert project.calls() == ["riverrun demo"]


def test_the_tools_are_added_to_the_same_environment_once(project: Project) -> None:
    project.add_python()
    assert project.make("install").returncode == 0
    assert project.calls() == [*BASE, *RIVERRUN]
    assert project.make("test", "PYTEST_ARGS=-k one").returncode == 0
    assert project.calls() == [*DEV, *RIVERRUN, *STEPS[:-1], "python -m pytest -k one"]
    assert project.make("test").returncode == 0
    assert project.calls() == STEPS
    assert project.make("demo").returncode == 0
    assert project.calls() == ["riverrun demo"]


@pytest.mark.parametrize(("cut", "step"), [("base.txt", BASE), ("dev.txt", DEV), ("-e .", RIVERRUN)])
def test_a_half_made_environment_is_made_again(project: Project, cut: str, step: list[str]) -> None:
    project.add_python()
    assert project.make("test", fail=cut).returncode != 0
    assert step[-1] not in project.calls()
    assert project.make("test").returncode == 0
    again = project.calls()
    assert step[-1] in again
    if cut != "-e .":
        assert again == [*BASE, *DEV, *RIVERRUN, *STEPS]


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("requirements/base.txt", [*BASE, *DEV, *RIVERRUN]),
        ("requirements/dev.txt", [*DEV, *RIVERRUN]),
        ("pyproject.toml", RIVERRUN),
        ("Makefile", []),
    ],
)
def test_a_change_redoes_what_depends_on_it(project: Project, name: str, steps: list[str]) -> None:
    project.add_python()
    assert project.make("test").returncode == 0
    project.calls()
    later = time.time() + 2
    os.utime(project.folder / name, (later, later))
    assert project.make("test").returncode == 0
    assert project.calls() == [*steps, *STEPS]


@pytest.mark.parametrize("step", STEPS)
def test_tests_stop_at_the_first_failure_and_name_it(project: Project, step: str) -> None:
    project.add_python()
    ran = project.make("test", fail=step)
    assert ran.returncode != 0
    assert f'make test: FAILED at ".venv/bin/{step}" (exit status 7)' in ran.stderr
    assert project.calls()[-1] == ([*RIVERRUN, *STEPS][STEPS.index(step)])


def test_an_old_python_is_named_with_the_way_out(project: Project) -> None:
    project.add_python(text="#!/bin/sh\n[ $1 = --version ] && echo Python 3.9.2 || exit 1\n")
    ran = project.make("demo")
    assert ran.returncode != 0
    assert (
        "riverrun needs Python 3.11 or newer (Python 3.9.2). Name one: make PYTHON=python3.12" in ran.stderr
    )
    assert project.calls() == []


def test_no_python_at_all(project: Project) -> None:
    ran = project.make("demo")
    assert ran.returncode != 0
    assert "needs Python 3.11 or newer (python3: not found)" in ran.stderr


def test_a_newer_python_beside_an_old_one_is_found_and_one_that_is_named_is_taken(project: Project) -> None:
    project.add_python(text="#!/bin/sh\nexit 1\n")
    project.add_python("python3.12")
    assert project.make("install").returncode == 0
    assert project.calls() == [*BASE, *RIVERRUN]
    refused = project.make("install", "PYTHON=python3", "--always-make")
    assert "needs Python 3.11 or newer" in refused.stderr
    assert project.calls() == []


def test_a_python_without_its_venv_module_names_the_package(project: Project) -> None:
    project.add_python(
        text=PYTHON.replace(
            '[ "$1" = -c ] && exit 0',
            """
case "$2" in *ensurepip*) exit 1 ;; *print*) echo 3.11; exit 0 ;; esac
[ "$1" = -c ] && exit 0""",
        )
    )
    ran = project.make("demo")
    assert ran.returncode != 0
    assert "python3 has no venv module" in ran.stderr
    assert "apt-get install python3.11-venv" in ran.stderr
    assert project.calls() == []


def test_help_lists_every_target(project: Project) -> None:
    shown = project.make()
    assert shown.returncode == 0
    listed = {line.split()[1] for line in shown.stdout.splitlines()}
    lines = (ROOT / "Makefile").read_text().splitlines()
    assert listed == {line.split()[1] for line in lines if line.startswith(".PHONY")}


def test_ci_runs_the_tests_with_ci_set_and_passes_their_status_on(project: Project) -> None:
    (project.folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", project.folder / ".ci/run")
    project.add_python()
    for name in ("git", "redis-server", "java", "mvn"):
        project.add_python(name, "#!/bin/sh\n")
    (project.path / "make").unlink()
    project.add_python("make", '#!/bin/sh\necho "make $* CI=$CI"\nexit 3\n')
    ran = project.run("bash", ".ci/run")
    assert (ran.returncode, ran.stdout) == (3, "make test CI=true\n")


def test_ci_goes_on_where_it_cannot_install(project: Project) -> None:
    (project.folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", project.folder / ".ci/run")
    project.add_python()
    (project.path / "make").unlink()
    project.add_python("make", "#!/bin/sh\necho tested\n")
    ran = project.run("bash", ".ci/run")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "missing: git redis-server default-jre-headless maven"
    assert ran.stdout.splitlines()[-1] == "tested"


@pytest.mark.parametrize("fail", [None, "riverrun demo"])
def test_the_kafka_demo_ends_the_broker_that_it_started(project: Project, fail: str | None) -> None:
    project.add_python()
    assert project.make("install").returncode == 0
    project.calls()
    ran = project.make("demo-kafka", "ARGS=--json", fail=fail)
    assert (ran.returncode == 0) is (fail is None)
    calls = project.calls()
    assert calls[0] == "python deploy/kafka/broker.py up"
    assert calls[1:-1] == ([] if fail else ["riverrun demo --kafka --json"])
    assert calls[-1] == "python deploy/kafka/broker.py down"


def test_the_kafka_demo_leaves_a_broker_that_ran_before(project: Project) -> None:
    project.add_python()
    assert project.make("install").returncode == 0
    project.calls()
    (project.folder / ".run/kafka").mkdir(parents=True)
    (project.folder / ".run/kafka/broker.pid").write_text(str(os.getpid()))
    assert project.make("demo-kafka").returncode == 0
    assert project.calls() == ["python deploy/kafka/broker.py up", "riverrun demo --kafka"]
