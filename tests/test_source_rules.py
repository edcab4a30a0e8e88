"""Rules that the source keeps, checked on the source itself: nothing that runs code from data, nothing of the
machine it was written on, pinned requirements, small documented files."""

from __future__ import annotations

import ast
import contextlib
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
PRODUCT = sorted(path for top in [*PACKAGES, "deploy"] for path in (ROOT / top).rglob("*.py"))
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))

# Modules that turn bytes into code or objects of any class, and calls that do.
FORBIDDEN_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {
    "torch.load",
    "torch.save",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "pandas.read_pickle",
}
FORBIDDEN_NAMES = {"eval", "exec"}
IMPORTERS = {"__import__", "import_module", "importlib.import_module"}


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a chain of attributes on a name; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def unsafe(source: str) -> Iterator[str]:
    """What in this source could run code from data, as `line: what`. Strings and comments say what they
    like."""
    tree = ast.parse(source)
    renamed: dict[str, str] = {}  # names bound by imports, with what they stand for
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                renamed[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                if alias.name.split(".")[0] in FORBIDDEN_MODULES:
                    yield f"{node.lineno}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                renamed[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                if node.module.split(".")[0] in FORBIDDEN_MODULES or alias.name in FORBIDDEN_MODULES:
                    yield f"{node.lineno}: from {node.module} import {alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
            yield f"{node.lineno}: {node.id}"
        if isinstance(node, ast.Attribute | ast.Name):
            head, _, rest = dotted(node).partition(".")
            name = renamed.get(head, head) + (f".{rest}" if rest else "")
            if name in FORBIDDEN_CALLS or re.fullmatch(r"builtins\.(eval|exec)", name):
                yield f"{node.lineno}: {name}"
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                allowed = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                if keyword.arg == "allow_pickle" and not allowed:
                    yield f"{node.lineno}: allow_pickle"
            if dotted(node.func) in IMPORTERS:
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and argument.value in FORBIDDEN_MODULES:
                        yield f"{node.lineno}: {dotted(node.func)}({argument.value!r})"


@pytest.mark.parametrize("path", PRODUCT, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_runs_code_from_data(path: Path) -> None:
    assert list(unsafe(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "def f():\n    from dill import loads",
        "import joblib.numpy_pickle",
        "from river.utils import cloudpickle",
        "import torch\nx = torch.load(f)",
        "import torch as t\nload = t.load",
        "from torch import load\nload(f)",
        "from yaml import load as read\nread(text)",
        "eval('1')",
        "run = exec",
        "import builtins\nbuiltins.eval('1')",
        "import numpy as np\nnp.load(f, allow_pickle=True)",
        "np.load(f, allow_pickle=wanted)",
        "import importlib\nimportlib.import_module('pickle')",
        "__import__('marshal')",
    ],
)
def test_the_rule_sees_every_way_of_running_code_from_data(source: str) -> None:
    assert list(unsafe(source)) != []


def test_the_rule_takes_words_for_words() -> None:
    source = '"""No pickle here; torch.load and eval are refused."""\nx = "import pickle"  # exec\n'
    assert list(unsafe(source + "model.eval()\nyaml.safe_load(x)\nnp.load(x, allow_pickle=False)\n")) == []


def tracked() -> list[Path]:
    """The files that git keeps and that are still there; without git (an unpacked archive) all files outside
    of what builds and runs leave behind."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    made = re.compile(r"(^|/)(\.(?!ci/|gitignore|dockerignore)[^/]*|__pycache__|dist|secrets)(/|$)")
    everything = (path for path in ROOT.rglob("*") if path.is_file())
    return [path for path in everything if not made.search(str(path.relative_to(ROOT)))]


def test_without_git_the_same_rules_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    with_git = set(tracked())
    assert Path(__file__) in with_git
    monkeypatch.setenv("PATH", "")
    found = set(tracked())
    assert with_git - found <= {path for path in with_git if "secrets" in path.parts}
    assert not any({".venv", ".git", "__pycache__"} & set(path.parts) for path in found)


# Folders of some person's or some build machine's own, and where packages come from.
OF_A_MACHINE = re.compile(
    r"""(?<![\w.}/])/(?:work|root|Users|opt/wheels)/\w | (?<![\w.}/])/home/\w | \.pyenv | [A-Z]:\\Users
    | --(?:extra-)?index-url | --find-links | (?:py)pi\.org | pythonhosted | registry\.npm | repo1?\.maven
    | proxy\.golang | static\.crates | index\.crates | (?:deb|security)\.debian""",
    re.VERBOSE,
)


def test_no_tracked_file_names_a_machine_or_a_package_index() -> None:
    found = []
    for path in tracked():
        if path == Path(__file__):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # data
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), 1)
            if OF_A_MACHINE.search(line)
        ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    # Put together here, so that this file keeps the rule too.
    ["/" + "work/x", "see /" + "home/me/x", "'/" + "root/x'", "--index-" + "url x", "https://pypi." + "org/"],
)
def test_the_rule_sees_machines_and_indexes(line: str) -> None:
    assert OF_A_MACHINE.search(line)


@pytest.mark.parametrize(
    "line", ["models/work/x", "https://example.org/home/x", "the root/child", "~/.cache"]
)
def test_the_rule_leaves_other_paths_alone(line: str) -> None:
    assert not OF_A_MACHINE.search(line)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    assert (ROOT / package / "__init__.py").exists()


def test_every_folder_of_modules_is_a_package_that_ships() -> None:
    folders = {path.parent for path in PRODUCT if path.relative_to(ROOT).parts[0] in PACKAGES}
    assert sorted(str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists()) == []
    with_code = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert with_code == set(PACKAGES), "a package that the wheel or the layers leave out"
    assert set(PROJECT["tool"]["importlinter"]["root_packages"]) == set(PACKAGES)
    assert set(PROJECT["tool"]["mypy"]["packages"]) == set(PACKAGES)


@pytest.mark.parametrize("path", PRODUCT, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_public_module_says_what_it_is(path: Path) -> None:
    if not path.name.startswith("_") or path.name == "__init__.py":
        assert (ast.get_docstring(ast.parse(path.read_text())) or "").strip()


def test_files_stay_small() -> None:
    python = [path for path in tracked() if path.suffix == ".py"]
    assert python != []
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in python}
    assert {name: lines for name, lines in sizes.items() if lines > 400} == {}


def pins(path: Path) -> dict[tuple[str, str], str]:
    """(name, marker) -> version of a requirements file; anything but hashed pins fails."""
    text = path.read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found = {}
    for line in lines:
        match = re.fullmatch(
            r"([a-z0-9-]+)==([^\s;]+)\s*(?:;\s*(.*?))?((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*", line
        )
        assert match is not None, f"{path.name}: not a pin with hashes: {line[:100]}"
        found[match[1], match[3] or ""] = match[2]
    return found


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_requirements_are_pins_with_hashes(path: Path) -> None:
    found = pins(path)
    assert found
    repeated = Counter(name for name, marker in found if not marker)
    assert [name for name, times in repeated.items() if times > 1] == []


def test_all_requirements_agree_where_they_share_a_package() -> None:
    assert {path.stem for path in REQUIREMENTS} == {"base", "dev", "torch", "faust"}
    versions: dict[str, dict[str, set[str]]] = {}
    for path in REQUIREMENTS:
        for (name, _), version in pins(path).items():
            versions.setdefault(name, {}).setdefault(path.stem, set()).add(version)
    apart = {
        name: by_file
        for name, by_file in versions.items()
        if "base" in by_file and any(not found <= by_file["base"] for found in by_file.values())
    }
    assert apart == {}, "an extra that does not fit into the environment of base.txt"


def test_every_dependency_is_pinned_in_the_file_of_its_extra() -> None:
    optional = PROJECT["project"]["optional-dependencies"]
    wanted = {
        "base": PROJECT["project"]["dependencies"] + (ROOT / "requirements/build.in").read_text().split(),
        "dev": optional["dev"] + optional["bench"],
        "torch": optional["torch"],
        "faust": optional["faust"],
    }
    for stem, requirements in wanted.items():
        pinned = {name for name, _ in pins(ROOT / f"requirements/{stem}.txt")}
        names = {re.match(r"[A-Za-z0-9-]+", requirement)[0].lower() for requirement in requirements}  # type: ignore[index]
        assert names - pinned == set(), stem
    build = {re.match(r"[a-z]+", name)[0] for name in PROJECT["build-system"]["requires"]}  # type: ignore[index]
    assert build <= {name for name, _ in pins(ROOT / "requirements/base.txt")}
