"""The lineages of a model: who learns, who serves, what watches them, and what an alarm leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.batch import Batch
from core.config import ModelConfig
from core.plain import BoolArray, FloatArray, IntArray, Plain, State
from drift.registry import build as build_detector
from learners.learner import Learner
from learners.registry import build as build_learner
from learners.scores import Scores
from rollout.policy import Decision, Policy
from stream.fold.effects import Effects

_DRIFTS_KEPT = 1_000
_FIRST = "L1"
SERVED = ""  # beside the lineages' names: what whoever was champion said when the event came


@dataclass(slots=True)
class Lineage:
    """One learner's life."""

    name: str
    learner: Learner
    scores: Scores
    born_ms: int
    born_at: int  # examples the model had learned by then
    origin: str


@dataclass(frozen=True, slots=True)
class Roles:
    """Which lineages serve."""

    champion: str
    canary: str | None
    shadows: tuple[str, ...]
    canary_share: float


class Contest:
    """All lineages predict every event and learn every example. The champion's losses feed the detectors;
    an alarm lets a challenger be born from the replay buffer (or what `on_drift` says); paired losses
    decide, by `Policy`, who serves."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._schema = config.schema_()
        self._born = 1
        first = Lineage(_FIRST, self._build(config.seed), self._scores(), 0, 0, "first start")
        self._lineages: dict[str, Lineage] = {_FIRST: first}
        self._policy = Policy(config.rollout, _FIRST)
        self.served = first.scores  # one object until somebody else is champion
        self._detectors = [build_detector(spec) for spec in config.drift.detectors]
        self._alarm: str | None = None
        self._acted_at: int | None = None
        self.detections = 0
        self.drifts: list[dict[str, Any]] = []
        self.retrainings = 0
        self.reason = ""
        self.gone: list[str] = []  # lineages that ended; the fold takes them off when it forgot them too

    @property
    def champion(self) -> Lineage:
        """Who answers most requests."""
        return self._lineages[self._policy.champion]

    def roles(self) -> Roles:
        """Who serves as what, now."""
        policy = self._policy
        return Roles(policy.champion, policy.canary, policy.shadows, self._config.rollout.canary_share)

    def interleave(self, events: Batch, examples: Batch, order: BoolArray) -> dict[str, FloatArray]:
        """Every lineage's scores for the events, and under SERVED the champion's once more: roles may
        have changed when the labels come. All lineages have learned the examples then."""
        scores = {
            name: lineage.learner.interleave(events, examples, order).scores
            for name, lineage in self._lineages.items()
        }
        scores[SERVED] = scores[self.champion.name]
        return scores

    def score(
        self,
        scores: Mapping[str, FloatArray],
        y: IntArray | FloatArray,
        no_change: IntArray | FloatArray,
        n_classes: int,
        examples: int,
        effects: Effects,
    ) -> None:
        """What each lineage had predicted (rows of NaN where it was not born yet) against the labels, in
        order. `examples` is how many came before these."""
        champion = self.champion
        codes = None if self._config.task == "regression" else no_change.astype(np.int64)
        scale = champion.scores.scale
        known = {name: ~np.isnan(rows[:, 0]) for name, rows in scores.items()}
        self._compare(scores, y, known, scale)
        for name, rows in scores.items():
            held = self.served if name == SERVED else self._lineages[name].scores
            if name != SERVED and held is self.served:
                continue
            here = known[name]
            if here.all():
                held.update(rows, y, codes, n_classes)
            else:
                held.update(rows[here], y[here], None if codes is None else codes[here], n_classes)
        here = known[champion.name]
        if codes is None:
            # Detectors are made for bounded values: one enormous error would deafen them.
            losses = champion.scores.bounded_loss(scores[champion.name][here], y[here], scale)
        else:
            losses = champion.scores.losses(scores[champion.name][here], y[here])
        self._watch(losses, np.flatnonzero(here), examples, effects)

    def _compare(
        self,
        scores: Mapping[str, FloatArray],
        y: IntArray | FloatArray,
        known: Mapping[str, BoolArray],
        scale: float | None,
    ) -> None:
        challengers = [name for name in self._policy.challengers if name in scores]
        if not challengers:
            return
        champion = self.champion
        for name in challengers:
            both = known[name] & known[champion.name]
            mine = champion.scores.bounded_loss(scores[champion.name][both], y[both], scale)
            theirs = champion.scores.bounded_loss(scores[name][both], y[both], scale)
            self._policy.observe(name, mine, theirs)

    def _watch(self, losses: FloatArray, rows: IntArray, examples: int, effects: Effects) -> None:
        window = self._config.window.count
        for detector in self._detectors:
            verdict = detector.update(losses)
            if verdict.drift_at < 0:
                continue
            # How many examples had been learned by then: those of windows that had closed.
            at = (examples + int(rows[verdict.drift_at]) + 1) // window * window
            found = {"at": at, "detector": detector.name}
            self.detections += verdict.drifts
            self.drifts = [*self.drifts, found][-_DRIFTS_KEPT:]
            effects.drifts.append(found)
            effects.alerts.append({"kind": "drift", **found})
            self._alarm = detector.name

    def decide(
        self,
        effects: Effects,
        kept: Callable[[], Batch],
        rng: np.random.Generator,
        now: int,
        now_ms: int,
    ) -> None:
        """Acts on an alarm, then on the evidence. `now` is the number of examples learned, `kept` gives
        the past that a challenger starts from."""
        if self._alarm is not None:
            self._respond(self._alarm, effects, kept, rng, now, now_ms)
            self._alarm = None
        for decision in self._policy.decide(now):
            self._tell(decision, effects)
        self._bury()

    def command(self, command: Mapping[str, Plain], effects: Effects, now: int) -> None:
        """An operator's order: {"id", "do": "promote" | "rollback" | "drop", "lineage"}."""
        order, lineage = command.get("do"), command.get("lineage") or ""
        challengers = self._policy.challengers
        if order == "promote" and not lineage and len(challengers) == 1:
            lineage = challengers[0]
        if order == "promote" and not lineage:
            there = f"name one of {', '.join(challengers)}" if challengers else "there is no challenger"
            decision = Decision("refuse", "", f"nothing to promote: {there}")
        elif order in ("promote", "rollback", "drop") and isinstance(lineage, str):
            decision = self._policy.command(order, lineage, now)
        else:
            decision = Decision("refuse", "", f"unknown command {order!r:.60}")
        self._tell(decision, effects, str(command["id"]))
        self._bury()

    def _respond(
        self,
        detector: str,
        effects: Effects,
        kept: Callable[[], Batch],
        rng: np.random.Generator,
        now: int,
        now_ms: int,
    ) -> None:
        response = self._config.drift.on_drift
        resting = self._acted_at is not None and now - self._acted_at < self._config.drift.cooldown
        if response not in ("challenger", "reset") or resting:
            return
        if response == "challenger" and not self._policy.has_room:
            return
        self._acted_at = now
        self._born += 1
        self.retrainings += 1
        name = f"L{self._born}"
        learner = self._build(int(rng.integers(2**31)))
        sample = kept()
        if len(sample):
            learner.learn(sample)
        origin = f"{detector} at {now:,} examples, from {len(sample):,} kept ones"
        self._lineages[name] = Lineage(name, learner, self._scores(), now_ms, now, origin)
        decision = self._policy.challenge(name, now)
        self._tell(Decision(decision.kind, name, f"born after {origin}"), effects)
        if response == "reset":
            self._tell(self._policy.command("promote", name, now), effects)

    def _tell(self, decision: Decision, effects: Effects, command: str | None = None) -> None:
        alert: dict[str, Any] = {
            "kind": decision.kind,
            "lineage": decision.lineage,
            "detail": f"{decision.lineage}: {decision.reason}" if decision.lineage else decision.reason,
        }
        if command is not None:
            alert |= {"command": command, "ok": decision.kind != "refuse"}
        effects.alerts.append(alert)
        if decision.kind != "refuse":
            effects.roles_changed = True
            self.reason = f"{decision.kind} {alert['detail']}"

    def _bury(self) -> None:
        if any(
            lineage.scores is self.served and name != self._policy.champion
            for name, lineage in self._lineages.items()
        ):
            # The champion changed: from now on its own scores and those of who serves go apart.
            self.served = Scores.from_state(self.served.state())
        kept = set(self._policy.lineages)
        for name in [name for name in self._lineages if name not in kept]:
            del self._lineages[name]
            self.gone.append(name)

    def _build(self, seed: int, state: State | None = None) -> Learner:
        return build_learner(self._config.learner, self._schema, self._config.task, seed, state)

    def _scores(self) -> Scores:
        known = self._config.class_values()
        return Scores(self._config.task, 0 if known is None else len(known))

    def describe(self) -> dict[str, Any]:
        """What a manifest says of every lineage."""
        stages = {self._policy.champion: "champion", **dict.fromkeys(self._policy.shadows, "shadow")}
        if self._policy.previous is not None:
            stages[self._policy.previous] = "previous"
        if self._policy.canary is not None:
            stages[self._policy.canary] = "canary"
        rows = {}
        for name, lineage in self._lineages.items():
            evidence = self._policy.evidence(name)
            rows[name] = {
                "part": f"learner/{name}",
                "stage": stages.get(name, "warming"),
                "born_at_ms": lineage.born_ms,
                "born_at": lineage.born_at,
                "origin": lineage.origin,
                "examples": lineage.scores.n,
                "metrics": lineage.scores.report(),
                "evidence": None
                if evidence is None
                else {
                    "n": evidence.n,
                    "mean_gain": evidence.mean_gain,
                    "lower": evidence.lower,
                    "upper": evidence.upper,
                },
            }
        return rows

    def learner_states(self) -> dict[str, State]:
        """Every lineage's learner, as parts of a snapshot."""
        return {f"learner/{name}": lineage.learner.state() for name, lineage in self._lineages.items()}

    def state(self) -> State:
        """All but the learners."""
        return {
            "born": self._born,
            "lineages": {
                name: {
                    "scores": lineage.scores.state(),
                    "born_ms": lineage.born_ms,
                    "born_at": lineage.born_at,
                    "origin": lineage.origin,
                }
                for name, lineage in self._lineages.items()
            },
            "served": None if self.served is self.champion.scores else self.served.state(),
            "policy": self._policy.state(),
            "detectors": [detector.state() for detector in self._detectors],
            "watched_by": list(self._config.drift.detectors),
            "acted_at": self._acted_at,
            "detections": self.detections,
            "drifts": [dict(found) for found in self.drifts],
            "retrainings": self.retrainings,
            "reason": self.reason,
        }

    @classmethod
    def from_state(cls, config: ModelConfig, state: State, parts: Mapping[str, State]) -> Contest:
        """The contest that `state` and the snapshot's learners describe."""
        contest = cls(config)
        contest._born = state["born"]
        contest._lineages = {
            name: Lineage(
                name,
                contest._build(config.seed, parts[f"learner/{name}"]),
                Scores.from_state(row["scores"]),
                row["born_ms"],
                row["born_at"],
                row["origin"],
            )
            for name, row in state["lineages"].items()
        }
        contest._policy = Policy.from_state(config.rollout, state["policy"])
        stored = state["served"]
        contest.served = contest.champion.scores if stored is None else Scores.from_state(stored)
        kept = list(state["detectors"])  # one that the configuration has since changed starts anew
        for i, spec in enumerate(config.drift.detectors):
            if spec in state["watched_by"]:
                contest._detectors[i] = build_detector(spec, kept[state["watched_by"].index(spec)])
        contest._acted_at = state["acted_at"]
        for name in ("detections", "retrainings", "reason"):
            setattr(contest, name, state[name])
        contest.drifts = [dict(found) for found in state["drifts"]]
        return contest
