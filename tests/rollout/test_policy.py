"""A challenger's way to traffic, step by step, and every way it can end."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import RolloutConfig
from rollout.evidence import PairedEvidence
from rollout.policy import Policy

CONFIG = RolloutConfig(min_examples=500, canary_examples=300, max_age=5_000)


class World:
    """Feeds a policy with losses, 100 examples at a time, and recovers it from its state each time."""

    def __init__(self, config=CONFIG, cooldown=0):
        self.config, self.cooldown = config, cooldown
        self.policy = Policy(config, "1", cooldown)
        self.now = 0
        self.log = []
        self.rng = np.random.default_rng(0)

    def run(self, n, **rates):
        """n examples at these error rates: champion=…, and challengers as L2=…, L3=…"""
        for _ in range(n // 100):
            self.now += 100
            champion = self.rng.binomial(1, rates["champion"], 100).astype(float)
            for name, rate in rates.items():
                if name != "champion" and name[1:] in self.policy.challengers:
                    self.policy.observe(name[1:], champion, self.rng.binomial(1, rate, 100).astype(float))
            self.policy = Policy.from_state(self.config, self.policy.state(), self.cooldown)
            self.log += [(d.kind, d.lineage, d.reason, self.now) for d in self.policy.decide(self.now)]
        return self

    def order(self, order, lineage=""):
        return self.policy.command(order, lineage, self.now)

    @property
    def kinds(self):
        return [(kind, lineage) for kind, lineage, _, _ in self.log]


def test_a_better_challenger_becomes_shadow_canary_champion():
    world = World()
    assert world.policy.challenge("2", 0).kind == "challenge"
    assert world.policy.challengers == ("2",)
    assert world.policy.shadows == ()
    world.run(3_000, champion=0.5, L2=0.3)
    assert world.kinds == [("shadow", "2"), ("canary", "2"), ("promote", "2")]
    shadow_at, canary_at, champion_at = (at for *_, at in world.log)
    assert shadow_at == 100
    assert canary_at >= 500
    assert champion_at >= canary_at + 300
    assert world.policy.champion == "2"
    assert world.policy.previous == "1"
    assert world.policy.challengers == ()
    assert world.policy.lineages == ("2", "1")


def test_reasons_carry_the_numbers():
    world = World()
    world.policy.challenge("2", 0)
    world.run(3_000, champion=0.5, L2=0.3)
    reason = world.log[1][2]
    assert "proven better" in reason
    assert "alpha 0.05" in reason
    assert "on 500 examples" in reason


def test_a_worse_challenger_is_dropped_long_before_its_age():
    world = World()
    world.policy.challenge("2", 0)
    world.run(3_000, champion=0.3, L2=0.5)
    assert world.kinds == [("shadow", "2"), ("drop", "2")]
    assert "proven worse" in world.log[1][2]
    assert world.policy.champion == "1"
    assert world.policy.has_room


def test_an_equal_challenger_is_dropped_at_its_age():
    world = World()
    world.policy.challenge("2", 0)
    world.run(6_000, champion=0.4, L2=0.4)
    assert world.kinds == [("shadow", "2"), ("drop", "2")]
    assert world.log[1][3] == 5_000
    assert "max_age 5,000" in world.log[1][2]


def test_a_challenger_that_nothing_is_compared_with_is_dropped_too():
    world = World()
    world.policy.challenge("2", 0)
    world.run(6_000, champion=0.4)
    assert world.kinds == [("drop", "2")]
    assert "no example compared yet" in world.log[0][2]


def test_a_canary_that_turns_bad_is_dropped():
    world = World()
    world.policy.challenge("2", 0)
    world.run(500, champion=0.5, L2=0.2)
    assert world.policy.canary == "2"
    world.run(600, champion=0.2, L2=0.7)
    assert world.kinds[-1] == ("drop", "2")
    assert "as canary" in world.log[-1][2]
    assert world.policy.champion == "1"
    assert world.policy.canary is None


def test_a_canary_without_examples_holds_then_times_out():
    world = World()
    world.policy.challenge("2", 0)
    world.run(500, champion=0.5, L2=0.2)
    world.run(200, champion=0.5, L2=0.2)
    world.run(4_700, champion=0.5)
    assert world.kinds[-1] == ("canary", "2")
    world.run(200, champion=0.5)
    assert world.kinds[-1] == ("drop", "2")


def test_a_minimal_gain_keeps_small_gains_out():
    world = World(CONFIG.model_copy(update={"min_gain": 0.15}))
    world.policy.challenge("2", 0)
    world.run(4_900, champion=0.4, L2=0.3)
    assert world.kinds == [("shadow", "2")]


def test_nobody_moves_up_in_the_cooldown_and_alternating_metrics_change_once():
    config = CONFIG.model_copy(update={"max_challengers": 2})
    world = World(config, cooldown=10_000)
    for lineage in "23":
        world.policy.challenge(lineage, 0)
    world.run(3_000, champion=0.5, L2=0.2, L3=0.3)
    assert world.policy.champion == "2"
    for _ in range(5):
        world.run(500, champion=0.5, L3=0.2).run(500, champion=0.45, L3=0.3)
    assert [kind for kind, _ in world.kinds].count("promote") == 1
    assert world.policy.canary is None


def test_after_a_promotion_the_others_start_again_against_the_new_champion():
    config = CONFIG.model_copy(update={"max_challengers": 3})
    world = World(config)
    for lineage in "234":
        world.policy.challenge(lineage, 0)
    world.run(400, champion=0.5, L2=0.1, L3=0.3)
    assert world.policy.evidence("3").n == 400
    while world.policy.champion == "1":
        world.run(100, champion=0.5, L2=0.1, L3=0.3)
    assert world.policy.evidence("3").n == 0
    assert world.policy.shadows == ("3",)
    assert world.policy.challengers == ("3", "4")
    world.run(2_000, champion=0.1, L3=0.3)
    assert world.kinds[-1] == ("drop", "3")


def test_one_canary_at_a_time_the_best_first():
    config = CONFIG.model_copy(update={"max_challengers": 2})
    world = World(config)
    for lineage in "23":
        world.policy.challenge(lineage, 0)
    world.run(500, champion=0.6, L2=0.3, L3=0.1)
    assert world.policy.canary == "3"
    assert world.policy.shadows == ("2",)


def test_challengers_share_alpha():
    world = World(CONFIG.model_copy(update={"max_challengers": 5}))
    world.policy.challenge("2", 0)
    assert world.policy.evidence("2").alpha == pytest.approx(0.01)
    assert world.policy.evidence("1") is None


def test_there_is_room_for_max_challengers_only():
    world = World()
    world.policy.challenge("2", 0)
    refused = world.policy.challenge("3", 0)
    assert refused.kind == "refuse"
    assert "max_challengers is 1" in refused.reason
    assert "2" in refused.reason
    assert world.policy.challengers == ("2",)


def test_a_lineage_cannot_challenge_twice():
    world = World()
    assert world.policy.challenge("1", 0).kind == "refuse"


def test_promote_by_order_and_roll_back():
    world = World()
    assert world.order("rollback").kind == "refuse"
    assert "no champion before 1" in world.order("rollback").reason
    world.policy.challenge("2", 0)
    promoted = world.order("promote", "2")
    assert (promoted.kind, promoted.lineage) == ("promote", "2")
    assert (world.policy.champion, world.policy.previous) == ("2", "1")
    assert world.order("rollback", "7").kind == "refuse"
    back = world.order("rollback")
    assert (back.kind, back.lineage) == ("rollback", "1")
    assert "2 is dropped" in back.reason
    assert (world.policy.champion, world.policy.previous) == ("1", None)
    assert world.order("rollback").kind == "refuse"


def test_promoting_the_previous_champion_is_a_rollback():
    world = World()
    world.policy.challenge("2", 0)
    world.order("promote", "2")
    assert world.order("promote", "1").kind == "rollback"
    assert world.policy.champion == "1"


def test_drop_by_order():
    world = World()
    world.policy.challenge("2", 0)
    assert world.order("drop", "2").kind == "drop"
    assert world.policy.challengers == ()
    refused = world.order("drop", "1")
    assert refused.kind == "refuse"
    assert "is the champion" in refused.reason
    world.policy.challenge("3", 0)
    world.order("promote", "3")
    assert world.order("drop", "1").kind == "drop"
    assert world.policy.lineages == ("3",)


@pytest.mark.parametrize(
    ("order", "lineage", "words"),
    [
        ("promote", "9", "no lineage '9'; there are 1"),
        ("promote", "", "no lineage ''"),
        ("promote", "1", "champion already"),
        ("drop", "9", "no lineage '9'"),
        ("pause", "1", "promote, rollback, drop"),
    ],
)
def test_orders_that_cannot_be_done_change_nothing_and_say_why(order, lineage, words):
    world = World()
    before = world.policy.state()
    refused = world.order(order, lineage)
    assert refused.kind == "refuse"
    assert words in refused.reason
    assert world.policy.state() == before


def test_losses_of_a_stranger_are_a_mistake():
    with pytest.raises(ValueError, match="9 is no challenger; there are: none"):
        World().policy.observe("9", np.zeros(1), np.zeros(1))


def test_the_state_is_plain():
    world = World()
    world.policy.challenge("2", 0)
    world.run(500, champion=0.5, L2=0.2)
    state = world.policy.state()
    assert state["challengers"][0]["stage"] == "canary"
    json.dumps(state, default=lambda array: array.tolist() if isinstance(array, np.ndarray) else 1 / 0)


def test_equal_challengers_are_seldom_promoted():
    promoted = 0
    for seed in range(60):
        world = World(RolloutConfig(min_examples=100, canary_examples=100, max_age=4_000))
        world.rng = np.random.default_rng(seed)
        world.policy.challenge("2", 0)
        world.run(4_200, champion=0.3, L2=0.3)
        promoted += world.policy.champion == "2"
    assert promoted <= 7  # 3 expected at most


orders = st.tuples(
    st.sampled_from(["promote", "rollback", "drop", "challenge", "run"]), st.sampled_from("12345")
)


@settings(max_examples=60, deadline=None)
@given(st.lists(orders, max_size=30))
def test_whatever_is_ordered_the_roles_stay_consistent(steps):
    config = RolloutConfig(min_examples=64, canary_examples=64, max_age=1_000, max_challengers=3)
    policy, now = Policy(config, "1", 100), 0
    for what, lineage in steps:
        if what == "challenge":
            policy.challenge(lineage, now)
        elif what == "run":
            now += 128
            for challenger in policy.challengers:
                policy.observe(challenger, np.ones(128), np.full(128, float(challenger < "4")))
            policy.decide(now)
        else:
            policy.command(what, lineage, now)
        policy = Policy.from_state(config, policy.state(), 100)
        assert len(set(policy.lineages)) == len(policy.lineages)
        assert policy.champion in policy.lineages
        assert policy.champion not in policy.challengers
        assert policy.previous != policy.champion
        assert len(policy.challengers) <= 3
        assert set(policy.shadows) | {policy.canary} - {None} <= set(policy.challengers)
        assert policy.canary not in policy.shadows
        assert all(isinstance(policy.evidence(c), PairedEvidence) for c in policy.challengers)
