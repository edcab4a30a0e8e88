"""`RIVERRUN__..._FILE`: values from files, so that secrets stay out of the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.env_overlay import overlay
from cli.load_config import load_config
from core.errors import ConfigError

SECRET = "redis://u:s3cret@host:6379/0"


def written(data: dict[str, Any], **environ: str) -> tuple[dict[str, Any], list[str]]:
    _, problems = overlay(data, environ)
    return data, problems


def secret(folder: Path, content: bytes = SECRET.encode() + b"\n") -> str:
    path = folder / "secret"
    path.write_bytes(content)
    return str(path)


def test_the_file_holds_the_value(tmp_path: Path) -> None:
    data, problems = written({}, RIVERRUN__STORE__URL_FILE=secret(tmp_path))
    assert (data, problems) == ({"store": {"url": SECRET}}, [])
    config = load_config(None, {"RIVERRUN__STORE__URL_FILE": secret(tmp_path)}, require="nothing")
    assert config.store.url == SECRET


def test_options_of_the_log_come_from_files_too(tmp_path: Path) -> None:
    data, problems = written(
        {"log": {"options": {"sasl.username": "u"}}},
        RIVERRUN__LOG__OPTIONS__SASL_PASSWORD_FILE=secret(tmp_path, b" 0123 \n"),
    )
    assert problems == []
    assert data["log"]["options"] == {"sasl.username": "u", "sasl.password": "0123"}  # text, not a number


@pytest.mark.parametrize(
    "name", ["RIVERRUN__SERVING__ADMIN_TOKEN_FILE", "riverrun__serving__admin_token_file"]
)
def test_a_key_that_ends_so_comes_first(name: str) -> None:
    data, problems = written({}, **{name: "/run/secrets/admin_token"})
    assert (data, problems) == ({"serving": {"admin_token_file": "/run/secrets/admin_token"}}, [])
    there = {"models": {"m": {"learner": {"weights_file": "w"}}}}
    data, problems = written(there, RIVERRUN__MODELS__M__LEARNER__WEIGHTS_FILE="v")
    assert (data["models"]["m"]["learner"], problems) == ({"weights_file": "v"}, [])


def test_numbers_in_files_are_numbers_where_one_is_due(tmp_path: Path) -> None:
    environ = {"RIVERRUN__SERVING__PORT_FILE": secret(tmp_path, b"81\n")}
    assert load_config(None, environ, require="nothing").serving.port == 81


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "No such file"), (b"\xff\xfe", "not UTF-8"), (b" \n", "is empty"), ("folder", "Is a directory")],
)
def test_what_is_wrong_names_the_file_and_never_its_content(
    tmp_path: Path, content: Any, problem: str
) -> None:
    path = tmp_path / "secret"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(None, {"RIVERRUN__STORE__URL_FILE": str(path)}, require="nothing")
    (told,) = caught.value.problems
    assert told.startswith(f"configuration: RIVERRUN__STORE__URL_FILE: {path}: ")
    assert problem in told


def test_a_value_that_does_not_fit_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "riverrun.toml").write_text("[models.m]\nevents = 'e'\ntask = 'binary'\nfeatures = 'any'\n")
    for content, name in ((SECRET, "RIVERRUN__STORE_FILE"), ("s3cret", "RIVERRUN__MODELS__M__TASK_FILE")):
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path / "riverrun.toml", {name: secret(tmp_path, content.encode())})
        assert f"(from {name}): must be " in str(caught.value)
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "riverrun.toml", {"RIVERRUN__STORE": SECRET})
    assert "s3cret" not in str(caught.value)


def test_one_of_two_must_go(tmp_path: Path) -> None:
    both = {"RIVERRUN__STORE__URL": "memory://", "RIVERRUN__STORE__URL_FILE": secret(tmp_path)}
    _, problems = written({}, **both)
    assert problems == [
        "RIVERRUN__STORE__URL_FILE: RIVERRUN__STORE__URL sets store.url already; keep one of them"
    ]
