"""Which lineage serves: the rules by which a challenger earns traffic, as a state machine without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.config import RolloutConfig
from core.plain import FloatArray, State
from rollout.evidence import PairedEvidence

Stage = Literal["warming", "shadow", "canary"]
Kind = Literal["challenge", "shadow", "canary", "promote", "rollback", "drop", "refuse"]
ORDERS = ("promote", "rollback", "drop")


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to a lineage, and why, with the numbers. "challenge": it was born; "shadow",
    "canary": it takes that role; "promote": it is champion now, and the champion before it is kept as the
    previous one; "rollback": it is champion again, and the one it replaces is gone; "drop": it is gone;
    "refuse": nothing changed."""

    kind: Kind
    lineage: str
    reason: str


@dataclass(slots=True)
class _Challenger:
    """A lineage on its way. `since` is the evidence gathered as canary alone."""

    lineage: str
    stage: Stage
    stage_at: int  # the model's examples when its present trial began
    total: PairedEvidence
    since: PairedEvidence | None = None

    def state(self) -> State:
        since = None if self.since is None else self.since.state()
        return {
            "lineage": self.lineage,
            "stage": self.stage,
            "stage_at": self.stage_at,
            "total": self.total.state(),
            "since": since,
        }

    @classmethod
    def from_state(cls, state: State) -> _Challenger:
        since = None if state["since"] is None else PairedEvidence.from_state(state["since"])
        total = PairedEvidence.from_state(state["total"])
        return cls(state["lineage"], state["stage"], state["stage_at"], total, since)


class Policy:
    """The lineages of one model: a champion, challengers, and the champion before.

    A challenger is warming until its first paired example, then shadow. It becomes canary when it is
    proven better by more than `min_gain` on at least `min_examples` pairs, and champion after
    `canary_examples` more on which it was better too. It is dropped when it is proven worse, at any stage,
    or when `max_age` examples went by without the next step. Proofs are at level alpha / max_challengers.
    After a promotion or a rollback every other challenger starts its trial again, against the new
    champion, and nobody moves up by itself for `cooldown` examples.

    `now` is always the number of examples that the model has learned: the only clock here.
    """

    def __init__(
        self, config: RolloutConfig, champion: str, cooldown: int | None = None, state: State | None = None
    ) -> None:
        self._config = config
        self._cooldown = config.canary_examples if cooldown is None else cooldown
        self._champion = champion
        self._previous: str | None = None
        self._changed_at: int | None = None
        self._challengers: list[_Challenger] = []
        if state is not None:
            self._champion = state["champion"]
            self._previous = state["previous"]
            self._changed_at = state["changed_at"]
            self._challengers = [_Challenger.from_state(row) for row in state["challengers"]]

    @classmethod
    def from_state(cls, config: RolloutConfig, state: State, cooldown: int | None = None) -> Policy:
        return cls(config, state["champion"], cooldown, state)

    def state(self) -> State:
        """Plain data, not shared with the policy."""
        return {
            "champion": self._champion,
            "previous": self._previous,
            "changed_at": self._changed_at,
            "challengers": [challenger.state() for challenger in self._challengers],
        }

    @property
    def champion(self) -> str:
        return self._champion

    @property
    def previous(self) -> str | None:
        """The champion before, to which a rollback goes."""
        return self._previous

    @property
    def canary(self) -> str | None:
        return next((c.lineage for c in self._challengers if c.stage == "canary"), None)

    @property
    def shadows(self) -> tuple[str, ...]:
        """Challengers that are compared but answer nobody, oldest first."""
        return tuple(c.lineage for c in self._challengers if c.stage == "shadow")

    @property
    def challengers(self) -> tuple[str, ...]:
        """All challengers, warming ones too, oldest first."""
        return tuple(c.lineage for c in self._challengers)

    @property
    def lineages(self) -> tuple[str, ...]:
        """Every lineage that must be kept: the champion, the challengers, the previous champion."""
        previous = () if self._previous is None else (self._previous,)
        return (self._champion, *self.challengers, *previous)

    @property
    def has_room(self) -> bool:
        """Whether another challenger may start."""
        return len(self._challengers) < self._config.max_challengers

    def evidence(self, lineage: str) -> PairedEvidence | None:
        """A challenger's evidence in its present trial; None where it is no challenger."""
        challenger = self._find(lineage)
        return None if challenger is None else challenger.total

    def challenge(self, lineage: str, now: int) -> Decision:
        """A new challenger, where there is room."""
        if not self.has_room:
            there = ", ".join(self.challengers)
            limit = self._config.max_challengers
            return Decision("refuse", lineage, f"max_challengers is {limit} and there is {there} already")
        if lineage in self.lineages:
            return Decision("refuse", lineage, f"there is a lineage {lineage} already")
        self._challengers.append(_Challenger(lineage, "warming", int(now), self._evidence()))
        return Decision("challenge", lineage, f"a challenger of {self._champion}, at {now:,} examples")

    def observe(self, lineage: str, champion_losses: FloatArray, challenger_losses: FloatArray) -> None:
        """Losses in [0, 1] of the champion and of a challenger on the same examples, in order."""
        challenger = self._find(lineage)
        if challenger is None:
            raise ValueError(
                f"{lineage} is no challenger; there are: {', '.join(self.challengers) or 'none'}"
            )
        challenger.total.update(champion_losses, challenger_losses)
        if challenger.since is not None:
            challenger.since.update(champion_losses, challenger_losses)

    def decide(self, now: int) -> list[Decision]:
        """What the evidence says by now; changes the roles accordingly. Looking often costs nothing."""
        decisions: list[Decision] = []
        for challenger in list(self._challengers):
            if challenger.stage == "warming" and challenger.total.n:
                challenger.stage = "shadow"
                decisions.append(Decision("shadow", challenger.lineage, "its first examples are compared"))
            reason = self._fails(challenger, now)
            if reason:
                self._challengers.remove(challenger)
                decisions.append(Decision("drop", challenger.lineage, reason))
        if self._changed_at is not None and now - self._changed_at < self._cooldown:
            return decisions
        return decisions + self._advance(now)

    def _fails(self, challenger: _Challenger, now: int) -> str:
        """Why a challenger goes, or nothing."""
        total, since = challenger.total, challenger.since
        if since is not None and since.loses():
            return f"proven worse as canary: {_numbers(since)}"
        if total.loses():
            return f"proven worse: {_numbers(total)}"
        age = now - challenger.stage_at
        if age >= self._config.max_age and not self._earned(challenger):
            limit = f"max_age {self._config.max_age:,}"
            return f"{age:,} examples as {challenger.stage} proved nothing ({limit}): {_numbers(total)}"
        return ""

    def _earned(self, challenger: _Challenger) -> bool:
        """Whether a challenger has what its next step takes."""
        config, total, since = self._config, challenger.total, challenger.since
        if not total.wins(config.min_gain):
            return False
        if since is None:
            return total.n >= config.min_examples
        return since.n >= config.canary_examples and since.mean_gain > config.min_gain

    def _advance(self, now: int) -> list[Decision]:
        """The next step of those who earned it: at most one promotion, and one canary at a time."""
        for challenger in self._challengers:
            if challenger.since is not None and self._earned(challenger):
                reason = (
                    f"better as canary too, by {challenger.since.mean_gain:.4g} on {challenger.since.n:,} "
                    f"examples; in all: {_numbers(challenger.total)}"
                )
                self._promote(challenger, now)
                return [Decision("promote", challenger.lineage, reason)]
        if self.canary is not None:
            return []
        ready = [c for c in self._challengers if c.stage == "shadow" and self._earned(c)]
        if not ready:
            return []
        best = max(ready, key=lambda c: c.total.lower)  # the oldest of equals
        best.stage, best.stage_at, best.since = "canary", int(now), self._evidence()
        return [Decision("canary", best.lineage, f"proven better: {_numbers(best.total)}")]

    def command(self, order: str, lineage: str, now: int) -> Decision:
        """An operator's order, at once and whatever the evidence: "promote" or "drop" a lineage, or
        "rollback" to the previous champion (`lineage` is then empty, or the champion to go back to).
        Refused, in words, where it cannot be done."""
        if order == "rollback" or (order == "promote" and lineage and lineage == self._previous):
            return self._roll_back(lineage, now)
        challenger = self._find(lineage)
        if order == "promote":
            if challenger is not None:
                reason = f"by order, as {challenger.stage}: {_numbers(challenger.total)}"
                self._promote(challenger, now)
                return Decision("promote", lineage, reason)
            if lineage == self._champion:
                return Decision("refuse", lineage, f"{lineage} is the champion already")
        elif order == "drop":
            if challenger is not None:
                self._challengers.remove(challenger)
                return Decision(
                    "drop", lineage, f"by order, as {challenger.stage}: {_numbers(challenger.total)}"
                )
            if lineage and lineage == self._previous:
                self._previous = None
                return Decision("drop", lineage, "by order: there is no champion to roll back to any more")
            if lineage == self._champion:
                return Decision(
                    "refuse", lineage, f"{lineage} is the champion: promote another, or roll back"
                )
        else:
            return Decision("refuse", lineage, f"an order is one of {', '.join(ORDERS)}, not {order!r}")
        return Decision("refuse", lineage, f"no lineage {lineage!r}; there are {', '.join(self.lineages)}")

    def _roll_back(self, lineage: str, now: int) -> Decision:
        back, left = self._previous, self._champion
        if back is None:
            return Decision("refuse", lineage, f"there was no champion before {left} to roll back to")
        if lineage and lineage != back:
            return Decision(
                "refuse", lineage, f"a rollback goes to {back}, the champion before, not to {lineage}"
            )
        self._champion, self._previous = back, None
        self._start_again(now)
        return Decision("rollback", back, f"by order: {left} is dropped")

    def _promote(self, challenger: _Challenger, now: int) -> None:
        self._challengers.remove(challenger)
        self._champion, self._previous = challenger.lineage, self._champion
        self._start_again(now)

    def _start_again(self, now: int) -> None:
        """The champion changed: what was compared with the old one says nothing about the new one."""
        self._changed_at = int(now)
        for other in self._challengers:
            other.stage = "warming" if other.stage == "warming" else "shadow"
            other.stage_at, other.total, other.since = int(now), self._evidence(), None

    def _evidence(self) -> PairedEvidence:
        return PairedEvidence(self._config.alpha / self._config.max_challengers)

    def _find(self, lineage: str) -> _Challenger | None:
        return next((c for c in self._challengers if c.lineage == lineage), None)


def _numbers(evidence: PairedEvidence) -> str:
    if not evidence.n:
        return "no example compared yet"
    seen = f"mean gain {evidence.mean_gain:.4g}"
    if evidence.lower <= evidence.upper:  # they cross where the gain itself changes over time
        seen += f", between {evidence.lower:.4g} and {evidence.upper:.4g}"
    return f"{seen} (alpha {evidence.alpha:.3g}), on {evidence.n:,} examples"
