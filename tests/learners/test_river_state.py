"""States of River models: exact, the same in every process, and closed to anything but River's classes."""

from __future__ import annotations

import copy
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import forest, linear_model, tree

from core.errors import ConfigError, CorruptSnapshot
from learners import river_registry, river_state
from learners.river_names import CLASSES
from learners.river_probe import same
from snapshots import codec

ROOT = Path(__file__).resolve().parents[2]


def trained(model: Any, n: int = 120) -> Any:
    rng = np.random.default_rng(0)
    for i in range(n):
        a, b = rng.normal(size=2).tolist()
        model.learn_one({"a": a, "b": b, "s": "xyz"[i % 3]}, a + b > 0)
    return model


def state_of(model: Any = None) -> dict[str, Any]:
    model = trained(tree.HoeffdingTreeClassifier(grace_period=20)) if model is None else model
    return codec.decode(codec.encode(river_state.encode(model)))


def test_every_listed_class_is_there() -> None:
    for module, names in CLASSES.items():
        for name in names.split():
            cls = river_registry.resolve(f"river.{module}.{name}")
            assert isinstance(cls, type)
            assert river_registry.name_of(cls) == f"river.{module}.{name}"


def test_sharing_and_cycles_come_back() -> None:
    model = linear_model.LogisticRegression()
    shared: list[Any] = [1.5, "x", None, 2**80, b"raw"]
    shared.append(shared)
    model.extra = {"one": shared, "two": shared, ("a", 1): frozenset({3, 1, 2}), "set": {"b", "a"}}
    back = river_state.decode(river_state.encode(model))
    assert back.extra["one"] is back.extra["two"]
    assert back.extra["one"][5] is back.extra["one"]
    assert back.extra["one"][:5] == [1.5, "x", None, 2**80, b"raw"]
    assert back.extra[("a", 1)] == frozenset({1, 2, 3})
    assert back.extra["set"] == {"a", "b"}


def test_numbers_keep_their_type_and_bits() -> None:
    model = linear_model.LogisticRegression()
    model.extra = [
        float("nan"),
        float("inf"),
        -0.0,
        np.float32(0.1),
        np.int64(3),
        True,
        5e-324,
        np.zeros((0, 3)),
    ]
    back = river_state.decode(state_of(model))
    assert [type(v) for v in back.extra] == [type(v) for v in model.extra]
    assert np.array(back.extra[:3]).tobytes() == np.array(model.extra[:3]).tobytes()
    assert back.extra[7].shape == (0, 3)


def test_generators_go_on() -> None:
    import random

    model = linear_model.LogisticRegression()
    model.extra = [random.Random(3), np.random.default_rng(4), np.random.RandomState(5)]
    model.extra[0].gauss(0, 1)
    model.extra[2].standard_normal()  # leaves one number waiting
    back = river_state.decode(state_of(model)).extra
    assert back[0].gauss(0, 1) == model.extra[0].gauss(0, 1)
    assert back[1].random() == model.extra[1].random()
    assert back[2].standard_normal() == model.extra[2].standard_normal()


def test_reading_a_state_asks_for_no_class_by_pickle() -> None:
    events: list[str] = []
    listening = True

    def hook(event: str, _: tuple[Any, ...]) -> None:
        if listening and event.startswith(
            ("pickle.", "marshal.", "exec", "compile", "subprocess", "os.system")
        ):
            events.append(event)

    state = state_of(trained(forest.ARFClassifier(n_models=3, seed=1)))
    river_state.decode(state)  # whatever River itself imports is imported by now
    sys.addaudithook(hook)
    try:
        river_state.decode(state)
    finally:
        listening = False
    assert events == []


HOSTILE_NAMES = [
    "os.system",
    "builtins.eval",
    "builtins.exec",
    "subprocess.Popen",
    "river.datasets.base.RemoteDataset",
    "river.utils.math.os",
    "river.tree.hoeffding_tree.HoeffdingTree.__init__",
    "learners.river_registry.resolve",
    "",
    "river",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("tag", ["name", "object", "call"])
def test_names_outside_the_registry_are_refused(tag: str, name: str) -> None:
    node = {
        "name": ["name", name],
        "object": ["object", name, [], [], [], [], [], None],
        "call": ["call", name, []],
    }
    state = {**state_of(), "nodes": [node[tag]], "root": [0]}
    with pytest.raises(CorruptSnapshot):
        river_state.decode(state)


@pytest.mark.parametrize(
    "nodes",
    [
        [["tuple", [[0]]]],  # an immutable thing that holds itself
        [["tuple", [[i + 1]]] for i in range(10_000)] + [["list", []]],
        [["list", [[7]]]],
        [["list", [[-1]]]],
        [["list", [[True]]]],
        [["list", [{}]]],
        [["nothing"]],
        [[]],
        [5],
        [None],
        [["dict", [1, 2], [1]]],
        [["dict", [[1]], [1]], ["list", []]],  # a key that cannot be hashed
        [["default", 5, [], []]],
        [["deque", -1, []]],
        [["method", [1], "__class__"], ["list", []]],
        [["method", [1], "clone"], ["list", []]],
        [["random", 3, b"short", None]],
        [["generator", {"bit_generator": "os"}]],
        [["array", "not an array"]],
        [["call", "river._river_rust.vectordict.VectorDict", [5]]],
        [["call", "builtins.dict", []]],
        [["object", "river._river_rust.drift.AdaptiveWindowing", [], [], [], [], [], b"\xff" * 40]],
        [["object", "river._river_rust.stats.RsRollingQuantile", [0.5, 10], [], [], [], [], b"\xff" * 400]],
        [["object", "river.linear_model.log_reg.LogisticRegression", [], ["a"], [], [], [], None]],
        [["object", "river.linear_model.log_reg.LogisticRegression", [], [], [], ["__dict__"], [5], None]],
    ],
    ids=range(25),
)
def test_malformed_tables_are_refused(nodes: list[Any]) -> None:
    with pytest.raises(CorruptSnapshot):
        river_state.decode({**state_of(), "nodes": nodes, "root": [0]})


def test_every_damaged_node_is_refused_or_decodes() -> None:
    state = state_of()
    refused = 0
    for i in range(len(state["nodes"])):
        damaged = copy.deepcopy(state)
        damaged["nodes"][i] = damaged["nodes"][i][:-1]
        try:
            river_state.decode(damaged)
        except CorruptSnapshot:
            refused += 1
    assert refused == len(state["nodes"])


@pytest.mark.parametrize(
    "change",
    [{"format": 2}, {"format": None}, {"river": "0.25.0"}, {"river": "9.0"}, {"nodes": 5}, {"root": [99999]}],
)
def test_other_formats_and_versions_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptSnapshot):
        river_state.decode({**state_of(), **change})


def test_what_cannot_be_saved_is_named() -> None:
    model = linear_model.LogisticRegression()
    for value, words in (
        (lambda: 1, "lambda"),
        (open, "open"),
        (Path("."), "Path"),
        (np.array([object()]), "object"),
    ):
        model.extra = value
        with pytest.raises(ConfigError, match=words):
            river_state.encode(model)


def test_a_state_shares_nothing_with_the_model() -> None:
    model = trained(forest.ARFClassifier(n_models=2, seed=1))
    state = river_state.encode(model)
    before = copy.deepcopy(state)
    trained(model, 60)
    assert same(state["nodes"], before["nodes"])
    trained(river_state.decode(state), 60)
    assert same(state["nodes"], before["nodes"])


DIGESTS = """
import hashlib, sys, warnings
sys.path[:0] = [{root!r}, {here!r}]
import numpy as np, conftest, test_learners_contract as contract
for case in contract.CASES:
    schema = conftest.mixed_schema() if case.mixed else conftest.numeric_schema()
    batch = conftest.rows(schema, case.task, 100, seed=2)
    learner = contract.make(case, schema)
    scores = learner.interleave(batch, batch, contract.alternate(100)).scores
    digest = hashlib.sha256(contract.stored(learner) + scores.tobytes()).hexdigest()
    print(case.name, digest)
"""


def test_states_do_not_depend_on_the_process() -> None:
    here = str(Path(__file__).parent)
    script = DIGESTS.format(root=str(ROOT), here=here)
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE
        )
        for seed in ("1", "2")
    ]
    first, second = (run.communicate(timeout=120)[0].decode().splitlines() for run in runs)
    assert len(first) > 40
    assert [line for line in first if line not in second] == []


def test_equal_models_have_equal_digests() -> None:
    a, b = (
        codec.encode(river_state.encode(trained(forest.ARFClassifier(n_models=2, seed=1)))) for _ in range(2)
    )
    assert hashlib.sha256(a).digest() == hashlib.sha256(b).digest()
