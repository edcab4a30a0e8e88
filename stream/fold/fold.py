"""A model's whole state, and the one step that changes it: deterministic, no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from core.batch import Batch
from core.config import ModelConfig
from core.errors import CorruptSnapshot
from core.plain import FloatArray, IntArray, State, objects
from learners.baselines import Baselines
from replay.registry import build as build_buffer
from stream.fold.classes import Classes
from stream.fold.contest import Contest
from stream.fold.effects import Effects, Predicted
from stream.fold.inputs import TurnInput
from stream.fold.join import Join
from stream.fold.pending import Pending
from stream.fold.window import CountWindow

FORMAT = 1
_COMMANDS_KEPT = 1_000
_NONE: IntArray = np.empty(0, dtype=np.int64)


class Fold:
    """Everything about one model between two turns. `parts()` is all of it as plain data; a fold made
    from them goes on as this one would, to the bit."""

    def __init__(self, config: ModelConfig) -> None:
        schema = config.schema_()
        self.config = config
        self.turn = 0
        self.now_ms = 0
        self.learned = 0
        self.examples = 0
        self.events = 0
        self.labels = 0
        self.trained_through_ms = 0
        self.rng = np.random.Generator(np.random.PCG64(config.seed))
        self.classes = Classes(config)
        self.join = Join(config.join)
        self.pending = Pending(len(schema.numeric), len(schema.categories) + len(schema.anys))
        self.window = CountWindow(config.window.count)
        self.baselines = Baselines(config.task)
        self.buffer = build_buffer(config.replay)
        self.contest = Contest(config)
        self.dead_letters: dict[str, int] = {}
        self.unlabelled = 0
        self.commands: list[str] = []  # ids of those obeyed of late
        self.nothing = Batch(objects([]), _NONE, np.empty((0, len(schema.numeric))), self.pending.objects[:0])

    def step(self, inputs: TurnInput) -> Effects:
        """Applies the turn and returns what is to be done about it."""
        effects = Effects(dead_letters=list(inputs.rejects))
        self.turn = inputs.turn.number
        self.now_ms = inputs.turn.now_ms
        for command in inputs.turn.commands:
            if command["id"] not in self.commands:  # it comes again where its queue was not told in time
                self.commands = [*self.commands, str(command["id"])][-_COMMANDS_KEPT:]
                self.contest.command(command, effects, self.learned)
        times: list[IntArray] = []
        for piece in self._pieces(inputs):
            if piece.event_labels is None:
                taken = self._without_duplicates(piece)
                self._step_joining(taken, effects)
            else:
                taken = self._step_carried(piece, effects)
            effects.events += len(taken.events)
            times += [taken.events.ts_ms, taken.label_ts_ms]
        self.events += effects.events
        self.labels += effects.labels
        for _, error in effects.dead_letters:
            self.dead_letters[error.reason] = self.dead_letters.get(error.reason, 0) + 1
        self._expire(np.concatenate(times), effects)
        self.contest.decide(effects, self._kept, self.rng, self.learned, self.now_ms)
        while self.contest.gone:
            self.pending.drop_lineage(self.contest.gone.pop())
        return effects

    # Events that carry their labels.

    def _step_carried(self, inputs: TurnInput, effects: Effects) -> TurnInput:
        """Returns the inputs without the events that are left out."""
        y, bad = self.classes.code(inputs.event_labels or [])
        if bad:
            effects.dead_letters.extend((inputs.event_place(i), error) for i, error in bad.items())
            mask = np.zeros(len(y), dtype=bool)
            mask[list(bad)] = True
            inputs, y = inputs.without_events(mask), y[~mask]
        new = self.join.first_time(inputs.events.ids.tolist())
        if new is not None:
            inputs, y = inputs.without_events(~new), y[new]
        events = inputs.events
        labelled = ~np.isnan(y) if self.config.task == "regression" else y >= 0
        n_labelled = int(labelled.sum())
        effects.labels += n_labelled
        self.unlabelled += len(events) - n_labelled
        if self.config.window.count == 1 and len(events) and labelled.all():
            self._learn_at_once(events, y, effects)
            return inputs
        slots = self.pending.put(events)
        positions = inputs.event_positions
        self._predict_and_learn(
            events, slots, positions, slots[labelled], positions[labelled], y[labelled], effects
        )
        self.pending.release(slots[~labelled])
        return inputs

    def _learn_at_once(self, events: Batch, y: IntArray | FloatArray, effects: Effects) -> None:
        """Test, then train, event by event: nothing waits, so nothing is stored."""
        n = len(events)
        places = np.arange(n, dtype=np.int64)
        no_change, usual = self.baselines.answers(2 * places + 1, y, 2 * places, len(self.classes))
        examples = events.labelled(y, len(self.classes))
        order = np.zeros(2 * n, dtype=bool)
        order[1::2] = True
        scores = self.contest.interleave(examples, examples, order)
        self._predicted(events, scores, effects)
        self._score(scores, y, no_change, usual, effects)
        self._learned(examples, effects)

    # Events whose labels have a topic of their own.

    def _step_joining(self, inputs: TurnInput, effects: Effects) -> None:
        labels, bad = self.classes.code(inputs.label_values)
        label_ids, label_ts, positions = inputs.label_ids, inputs.label_ts_ms, inputs.label_positions
        if bad:
            effects.dead_letters.extend((inputs.label_place(i), error) for i, error in bad.items())
            keep = np.array([i for i in range(len(labels)) if i not in bad], dtype=np.int64)
            label_ids = [label_ids[i] for i in keep.tolist()]
            labels, label_ts, positions = labels[keep], label_ts[keep], positions[keep]
        effects.labels += len(label_ids)
        events = inputs.events
        ids = events.ids.tolist()
        slots = self.pending.put(events)
        early = self.join.early_labels(ids)
        self.join.put(ids, slots)
        for i, label, _ in early:
            self.join.take(ids[i], label)
        found = self.join.match(label_ids, labels, label_ts)
        # An example is complete when the later of its two records has come.
        came_at = self.pending.came_at
        came_at[slots] = inputs.event_positions
        hits = np.flatnonzero(found >= 0)
        rows = np.array([i for i, _, _ in early], dtype=np.int64)
        example_slots = np.concatenate([found[hits], slots[rows]])
        y = np.concatenate([labels[hits], np.array([label for _, label, _ in early], dtype=labels.dtype)])
        known_ts = np.concatenate([label_ts[hits], np.array([ts for _, _, ts in early], dtype=np.int64)])
        complete_at = np.concatenate(
            [np.maximum(positions[hits], came_at[found[hits]]), came_at[slots[rows]]]
        )
        came_at[slots] = -1
        order = np.argsort(complete_at, kind="stable")
        example_slots, y, known_ts, complete_at = (
            example_slots[order],
            y[order],
            known_ts[order],
            complete_at[order],
        )
        late = self.join.too_late(self.pending.ts_ms[example_slots], known_ts)
        self.join.finish(
            self.pending.ids[example_slots].tolist(), np.where(late, np.nan, y.astype(np.float64)).tolist()
        )
        gone = example_slots[late]
        if late.any():
            self.join.counts["late_label"] += len(gone)
            self.join.counts["expired_event"] += len(gone)
            example_slots, y, complete_at = example_slots[~late], y[~late], complete_at[~late]
        self._predict_and_learn(events, slots, inputs.event_positions, example_slots, complete_at, y, effects)
        self._expired(gone, effects)

    def _expire(self, times: IntArray, effects: Effects) -> None:
        if self.join.advance(times, self.now_ms):
            gone = self.join.expire(self.pending.ts_ms)
            self.join.finish(self.pending.ids[gone].tolist(), [np.nan] * len(gone))
            self._expired(gone, effects)

    def _expired(self, slots: IntArray, effects: Effects) -> None:
        """Events whose label never came: dropped, or learned as the negative class."""
        if len(slots) == 0:
            return
        if self.config.join.on_expiry == "drop":
            self.pending.release(slots)
            return
        y = np.zeros(len(slots), dtype=np.int64)
        self._predict_and_learn(self.nothing, _NONE, _NONE, slots, np.arange(len(slots)), y, effects)

    # What both have in common.

    def _predict_and_learn(
        self,
        events: Batch,
        slots: IntArray,
        event_positions: IntArray,
        example_slots: IntArray,
        complete_at: IntArray,
        y: IntArray | FloatArray,
        effects: Effects,
    ) -> None:
        """Every event is predicted as it comes, every example scored when complete and learned when its
        window closes, in the order of their positions (an event before the example it completes)."""
        pending, n_classes = self.pending, len(self.classes)
        no_change, usual = self.baselines.answers(2 * complete_at + 1, y, 2 * event_positions, n_classes)
        pending.no_change[slots], pending.usual[slots] = no_change, usual
        pending.y[example_slots] = y
        released, release_at = self.window.push(example_slots, complete_at)
        learned_y = pending.y[released]
        if self.config.task != "regression":
            learned_y = learned_y.astype(np.int64)
        examples = pending.examples(released, learned_y, n_classes)
        keys = np.concatenate([2 * event_positions, 2 * release_at + 1])
        order = np.argsort(keys, kind="stable") >= len(events)
        scores = self.contest.interleave(events, examples, order)
        for lineage, rows in scores.items():
            pending.set_scores(lineage, slots, rows)
        self._predicted(events, scores, effects)
        width = max(n_classes, 1)
        self._score(
            {name: pending.get_scores(name, example_slots, width) for name in scores},
            y,
            pending.no_change[example_slots],
            pending.usual[example_slots],
            effects,
        )
        self._learned(examples, effects)
        pending.release(released)

    def _predicted(self, events: Batch, scores: Mapping[str, FloatArray], effects: Effects) -> None:
        if len(events):
            effects.predicted.append(Predicted(events, scores[self.contest.champion.name]))

    def _score(
        self,
        scores: Mapping[str, FloatArray],
        y: IntArray | FloatArray,
        no_change: IntArray | FloatArray,
        usual: IntArray | FloatArray,
        effects: Effects,
    ) -> None:
        if len(y):
            self.baselines.score(no_change, usual, y)
            self.contest.score(scores, y, no_change, len(self.classes), self.examples, effects)
            self.examples += len(y)
            effects.examples += len(y)

    def _learned(self, examples: Batch, effects: Effects) -> None:
        if len(examples):
            self.buffer.add(examples, self.rng)
            self.learned += len(examples)
            effects.learned += len(examples)
            times = self.join.believable(examples.ts_ms, self.now_ms)
            self.trained_through_ms = int(times.max(initial=self.trained_through_ms))

    def _kept(self) -> Batch:
        """What the replay buffer keeps, to learn from."""
        kept = self.buffer.sample(len(self.buffer), self.rng)
        return kept if kept.y is None else kept.labelled(kept.y, len(self.classes))

    def _without_duplicates(self, inputs: TurnInput) -> TurnInput:
        if len(inputs.events) == 0:
            return inputs
        known = self.join.known(inputs.events.ids.tolist())
        return inputs if known is None else inputs.without_events(known)

    def _pieces(self, inputs: TurnInput) -> Iterator[TurnInput]:
        """The turn's records, cut where an id must be forgotten amid them; forgets it on the way. An id
        that nothing here can touch may as well be forgotten at once: cuts cost time."""
        if not inputs.forgets:
            yield inputs
            return
        here = {*inputs.events.ids.tolist(), *inputs.label_ids}
        here.update(self.pending.ids[self.window.open].tolist())
        due: dict[int, list[str]] = {}
        for place, name in inputs.forgets:
            due.setdefault(place if name in here else 0, []).append(name)
        places = sorted(due.keys() - {0})
        for piece, place in zip(inputs.split(places), [0, *places], strict=True):
            self._forget(due.get(place, []))
            yield piece

    def _forget(self, names: list[str]) -> None:
        """Everything about these ids, but for what a learner has learned."""
        if not names:
            return
        waiting = [slot for slot in map(self.join.forget, names) if slot >= 0]
        gone = set(names)
        held = self.pending.ids[self.window.open].tolist()
        examples = self.window.discard(np.array([name in gone for name in held], dtype=bool))
        self.pending.release(np.concatenate([np.array(waiting, dtype=np.int64), examples]))
        self.buffer.forget(gone)
        self.join.counts["forgotten"] += len(names)

    def parts(self) -> dict[str, State]:
        """ "fold", and "learner/NAME" for each lineage: plain data that shares nothing with the fold."""
        live = self.pending.live().tolist()
        place = {slot: i for i, slot in enumerate(live)}
        fold: dict[str, Any] = {
            "format": FORMAT,
            "turn": self.turn,
            "now_ms": self.now_ms,
            "learned": self.learned,
            "examples": self.examples,
            "events": self.events,
            "labels": self.labels,
            "unlabelled": self.unlabelled,
            "trained_through_ms": self.trained_through_ms,
            "rng": self.rng.bit_generator.state,
            "commands": list(self.commands),
            "classes": list(self.classes.values),
            "join": self.join.state(place),
            "pending": self.pending.state(),
            "window": np.array([place[int(s)] for s in self.window.open], dtype=np.int64),
            "baselines": self.baselines.state(),
            "buffer": self.buffer.state(),
            "contest": self.contest.state(),
            "dead_letters": dict(sorted(self.dead_letters.items())),
        }
        return {"fold": fold, **self.contest.learner_states()}

    @classmethod
    def from_parts(cls, config: ModelConfig, parts: Mapping[str, State]) -> Fold:
        """The fold that `parts` describes. Raises CorruptSnapshot where they do not fit."""
        state = parts["fold"]
        if state.get("format") != FORMAT:
            raise CorruptSnapshot(f"fold format {state.get('format')!r}, this version reads {FORMAT}")
        fold = cls(config)
        for name in ("turn", "now_ms", "learned", "examples", "events", "labels", "unlabelled"):
            setattr(fold, name, state[name])
        fold.trained_through_ms = state["trained_through_ms"]
        fold.rng.bit_generator.state = state["rng"]
        fold.commands = list(state["commands"])
        fold.classes = Classes(config, state["classes"])
        fold.join = Join.from_state(config.join, state["join"])
        fold.pending = Pending.from_state(state["pending"])
        fold.window = CountWindow(config.window.count, state["window"])
        fold.baselines = Baselines.from_state(state["baselines"])
        fold.buffer = build_buffer(config.replay, state["buffer"])
        fold.contest = Contest.from_state(config, state["contest"], parts)
        fold.dead_letters = dict(state["dead_letters"])
        return fold
