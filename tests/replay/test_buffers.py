"""What every replay buffer promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.batch import Batch, concat
from core.config import ReplayConfig
from core.errors import ConfigError
from core.plain import objects
from replay.registry import POLICIES, build, check
from snapshots.codec import encode

each = pytest.mark.parametrize("policy", POLICIES)


def make(first, n, classes=2):
    """Rows that know their number everywhere."""
    number = np.arange(first, first + n)
    kept = np.empty((n, 2), object)
    kept[:, 0] = [f"c{i % 7}" for i in number]
    kept[:, 1] = objects([{"n": int(i), "list": [1, None]} for i in number])
    X = np.column_stack([number.astype(float), np.where(number % 3, -number, np.nan)])
    return Batch(objects([f"e{i}" for i in number]), number * 10, X, kept, number % 2, classes)


def buffer(policy, capacity, state=None):
    return build(ReplayConfig(policy=policy, capacity=capacity), state)


def numbers(batch):
    return batch.X[:, 0].astype(int).tolist() if len(batch) else []


def check_whole(batch):
    """Every column of every row belongs to the same row."""
    for i, n in enumerate(numbers(batch)):
        assert batch.ids[i] == f"e{n}"
        assert batch.ts_ms[i] == n * 10
        assert batch.objects[i, 0] == f"c{n % 7}"
        assert batch.objects[i, 1] == {"n": n, "list": [1, None]}
        assert np.isnan(batch.X[i, 1]) if n % 3 == 0 else batch.X[i, 1] == -n
        assert batch.y[i] == n % 2


def everything(buffer):
    return buffer.sample(len(buffer), np.random.default_rng(0))


def flat(state):
    """A state that == compares; NaN too."""
    if isinstance(state, dict):
        return {k: flat(v) for k, v in state.items()}
    return (state.dtype.str, state.shape, state.tobytes()) if isinstance(state, np.ndarray) else state


@each
def test_rows_stay_whole_and_in_order(policy):
    rng = np.random.default_rng(3)
    kept = buffer(policy, 50)
    for first in range(0, 600, 60):
        kept.add(make(first, 60), rng)
        assert len(kept) == 50
        for batch in (everything(kept), kept.sample(20, rng)):
            check_whole(batch)
            assert numbers(batch) == sorted(set(numbers(batch)))
            assert max(numbers(batch)) < first + 60
            assert batch.n_classes == 2
    assert len(kept.sample(20, rng)) == 20
    assert len(kept.sample(500, rng)) == 50
    assert len(kept.sample(0, rng)) == 0


@each
def test_a_sample_differs_with_the_generator_and_does_not_change_the_buffer(policy):
    kept = buffer(policy, 100)
    kept.add(make(0, 100), np.random.default_rng(0))
    before = flat(kept.state())
    rng = np.random.default_rng(1)
    picks = [tuple(numbers(kept.sample(10, rng))) for _ in range(20)]
    assert len(set(picks)) > 15
    assert flat(kept.state()) == before


@each
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_bounds_pieces_forgetting_and_recovery(policy, data):
    """Offered whole, in pieces, or in pieces with a recovery between any two: the same rows, the same
    samples; never more than the capacity; a forgotten row never comes back."""
    capacity = data.draw(st.integers(0, 40))
    whole, parts = buffer(policy, capacity), buffer(policy, capacity)
    rng, rng_parts = np.random.default_rng(9), np.random.default_rng(9)
    forgotten: set[str] = set()
    first = 0
    for _ in range(data.draw(st.integers(1, 5))):
        n = data.draw(st.integers(0, 60))
        cut = data.draw(st.integers(0, n))
        whole.add(make(first, n), rng)
        for piece in (make(first, cut), make(first + cut, n - cut)):
            parts.add(piece, rng_parts)
            parts = buffer(policy, capacity, parts.state())
        first += n
        ids = {f"e{i}" for i in data.draw(st.sets(st.integers(0, 300), max_size=30))}
        there = set(everything(whole).ids)
        assert whole.forget(ids) == parts.forget(ids) == len(there & ids)
        forgotten |= {i for i in ids if int(i[1:]) < first}
        assert len(whole) <= capacity
        assert not forgotten & set(everything(whole).ids)
        assert set(everything(whole).ids) == there - ids
        check_whole(everything(whole))
    assert flat(whole.state()) == flat(parts.state())
    assert rng.random() == rng_parts.random()
    assert numbers(whole.sample(5, rng)) == numbers(parts.sample(5, rng_parts))


@each
def test_the_state_is_plain_and_not_shared(policy):
    rng = np.random.default_rng(0)
    kept = buffer(policy, 30)
    kept.add(make(0, 100), rng)
    state = kept.state()
    before = flat(state)
    kept.add(make(100, 500), rng)
    kept.forget(set(everything(kept).ids[:10]))
    assert flat(state) == before
    rows = state["rows"]
    assert all(type(i) is str for i in rows["ids"])
    assert [type(c) for c in rows["objects"]] == [list, list]
    assert all(type(v) is str for v in rows["objects"][0])
    assert all(type(v) is dict for v in rows["objects"][1])


@each
def test_the_batch_is_left_alone(policy):
    batch = make(0, 100)
    same = make(0, 100)
    buffer(policy, 30).add(batch, np.random.default_rng(0))
    assert np.array_equal(batch.X, same.X, equal_nan=True)
    assert list(batch.ids) == list(same.ids)


@each
def test_memory_grows_with_the_rows_not_with_the_capacity_of_the_columns(policy):
    kept = buffer(policy, 1_000_000)
    kept.add(make(0, 10), np.random.default_rng(0))
    assert kept._rows._room <= 64
    assert len(everything(kept)) == 10


@each
def test_labels_may_be_numbers_and_columns_may_be_missing(policy):
    batch = Batch(
        objects(["a", "b"]),
        np.array([1, 2]),
        np.empty((2, 0)),
        np.empty((2, 0), object),
        np.array([0.5, 1.5]),
    )
    kept = buffer(policy, 5)
    kept.add(batch, np.random.default_rng(0))
    again = buffer(policy, 5, kept.state())
    assert everything(again).y.tolist() == [0.5, 1.5]
    assert everything(again).y.dtype == np.float64
    assert everything(again).X.shape == (2, 0)


@each
def test_classes_grow(policy):
    rng = np.random.default_rng(0)
    kept = buffer(policy, 5)
    kept.add(make(0, 20, 2), rng)
    kept.add(make(20, 20, 6), rng)
    kept.add(make(40, 1, 3), rng)
    assert everything(kept).n_classes == 6
    assert everything(buffer(policy, 5, kept.state())).n_classes == 6


@each
def test_rows_without_labels_are_refused(policy):
    batch = make(0, 3)
    with pytest.raises(ValueError, match="3 rows came without labels"):
        buffer(policy, 5).add(Batch(batch.ids, batch.ts_ms, batch.X, batch.objects), np.random.default_rng(0))


@each
def test_an_empty_buffer_and_one_of_capacity_0(policy):
    for capacity in (0, 5):
        kept = buffer(policy, capacity)
        assert len(everything(kept)) == 0
        kept.add(make(0, 0), np.random.default_rng(0))
        assert kept.forget({"e1"}) == 0
        assert len(buffer(policy, capacity, kept.state())) == 0
    kept = buffer(policy, 0)
    kept.add(make(0, 100), np.random.default_rng(0))
    assert len(kept) == len(everything(kept)) == 0


@each
def test_a_smaller_capacity_cuts_the_stored_rows_down(policy):
    rng = np.random.default_rng(0)
    kept = buffer(policy, 100)
    kept.add(make(0, 1_000), rng)
    smaller = buffer(policy, 30, kept.state())
    assert len(smaller) == 30
    check_whole(everything(smaller))
    assert set(numbers(everything(smaller))) <= set(numbers(everything(kept)))
    larger = buffer(policy, 300, kept.state())
    larger.add(make(1_000, 100_000), rng)
    assert 100 <= len(larger) <= 300
    check_whole(everything(larger))


def test_recent_keeps_the_newest():
    rng = np.random.default_rng(0)
    kept = buffer("recent", 10)
    for first in range(0, 100, 7):
        kept.add(make(first, 7), rng)
    assert numbers(everything(kept)) == list(range(95, 105))
    kept.forget({"e99", "e104"})
    kept.add(make(105, 3), rng)
    assert numbers(everything(kept)) == [96, 97, 98, 100, 101, 102, 103, 105, 106, 107]
    assert numbers(everything(buffer("recent", 4, kept.state()))) == [103, 105, 106, 107]


def test_samples_can_be_joined():
    kept = buffer("recent", 10)
    kept.add(make(0, 10), np.random.default_rng(0))
    assert len(concat([everything(kept), make(10, 5)])) == 15


def test_a_state_of_another_policy_is_refused():
    with pytest.raises(ConfigError, match=r'replay\.policy: "recent".*"reservoir"'):
        buffer("recent", 5, buffer("reservoir", 5).state())


@pytest.mark.parametrize("policy", ["balanced", "prioritized"])
def test_policies_to_come_are_refused_in_words(policy):
    with pytest.raises(ConfigError, match=f'"{policy}".*reservoir, recent'):
        buffer(policy, 5)
    assert len(check(ReplayConfig(policy=policy))) == 1
    assert check(ReplayConfig(policy="recent")) == []


@pytest.mark.parametrize("policy", ["reservoir", "recent"])
def test_an_emptied_buffer_has_the_bytes_of_one_restored_from_it(policy: str) -> None:
    config = ReplayConfig(policy=policy, capacity=10)  # type: ignore[arg-type]  # one of the two
    buffer, rng = build(config), np.random.default_rng(0)
    names = objects(["a", "b"])
    X, other = np.ones((2, 3)), np.empty((2, 1), object)
    other[:, 0] = ["p", "q"]
    batch = Batch(names, np.arange(2), X, other, np.array([0, 1]), 2)
    buffer.add(batch, rng)
    assert buffer.forget({"a", "b"}) == 2
    again = build(config, buffer.state())
    assert encode(again.state()) == encode(buffer.state())
