"""A share of ids goes to the canary: the right share, always the same ids, others for another canary."""

from hypothesis import given
from hypothesis import strategies as st

from rollout.routing import position, route

IDS = [f"user-{i}" for i in range(20_000)]


def taken(share, lineage="a"):
    return {i for i in IDS if route(i, share, lineage) == "canary"}


def test_the_share_is_right():
    for share in (0.01, 0.1, 0.5):
        n, expected = len(taken(share)), share * len(IDS)
        assert abs(n - expected) < 4 * (expected * (1 - share)) ** 0.5


def test_nobody_and_everybody():
    assert taken(0.0) == set()
    assert taken(1.0) == set(IDS)


def test_different_canaries_take_different_users():
    both = len(taken(0.1, "a") & taken(0.1, "b"))
    assert 140 < both < 260  # 200 expected where they are independent


@given(st.text(), st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_growing_share_keeps_those_who_were_in(user, lineage, one, other):
    small, large = sorted((one, other))
    assert 0 <= position(user, lineage) < 1
    assert route(user, small, lineage) == route(user, small, lineage)
    if route(user, small, lineage) == "canary":
        assert route(user, large, lineage) == "canary"


def test_the_places_of_ids_never_change():
    """Fixed numbers: another process, machine or release must send a user to the same role."""
    assert [round(position(i, "2"), 9) for i in ("e1", "e2", "ü", "\ud800")] == [
        0.834494554,
        0.824662197,
        0.815544859,
        0.291364909,
    ]
