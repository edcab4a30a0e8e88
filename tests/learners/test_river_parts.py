"""The stand-ins for River's own classes: the same numbers to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import preprocessing

from learners.river_parts import StandardScaler

ROWS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.floats(-1e9, 1e9) | st.integers(-5, 5) | st.booleans()),
    min_size=1,
    max_size=30,
)


def contents(scaler: Any) -> str:
    """Everything it holds, to the last bit (rolling statistics by their values)."""
    windowed = scaler.window_size is not None
    held = {name: dict(getattr(scaler, name)) for name in ("counts", "means", "vars")}
    if windowed:
        for name in ("means", "vars"):
            held[name] = {key: statistic.get() for key, statistic in held[name].items()}
    return repr(held)


@pytest.mark.parametrize("options", [{}, {"with_std": False}, {"window_size": 3}])
@settings(max_examples=60, deadline=None)
@given(rows=ROWS)
def test_scaler_is_rivers_to_the_last_bit(options: dict[str, Any], rows: list[dict[Any, Any]]) -> None:
    ours, theirs = StandardScaler(**options), preprocessing.StandardScaler(**options)
    for x in rows:
        before = contents(ours)
        assert repr(ours.transform_one(x)) == repr(theirs.transform_one(x))
        assert contents(ours) == before
        ours.learn_one(x)
        theirs.learn_one(x)
        assert repr(ours.transform_one(x)) == repr(theirs.transform_one(x))
    for name in {name for x in rows for name in x}:  # theirs keeps every feature it was asked about
        assert ours.counts[name] == theirs.counts[name]
        for held in ("means", "vars"):
            mine, yours = getattr(ours, held).get(name), getattr(theirs, held).get(name)
            if "window_size" in options and mine is not None:
                mine, yours = mine.get(), yours.get()
            assert repr(mine or 0.0) == repr(yours or 0.0)


@pytest.mark.parametrize("options", [{}, {"with_std": False}])
def test_scaler_raises_where_rivers_does_and_keeps_what_it_keeps(options: dict[str, Any]) -> None:
    ours, theirs = StandardScaler(**options), preprocessing.StandardScaler(**options)
    for scaler in (ours, theirs):
        scaler.learn_one({"a": 1.0, "b": 2.0})
        with pytest.raises(TypeError):
            scaler.learn_one({"a": 2.0, "b": "text", "c": 1.0})
    assert contents(ours) == contents(theirs)
