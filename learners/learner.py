"""The port that every learner fills, and the registry of kinds."""

from __future__ import annotations

from typing import Protocol

from core.batch import Batch, Predictions
from core.plain import BoolArray, State


class Learner(Protocol):
    """Predicts and learns. Learning is synchronous and deterministic: the same state and the same
    batches give the same bytes. Batches are never changed.

    Classification learners know the classes by their codes; `n_classes` columns come back, and a class
    that was never learned gets probability 0 (all 0 while none was learned, in multiclass; 0.5 each in
    binary).
    """

    def predict(self, batch: Batch) -> Predictions:
        """Scores for each row (`batch.y` is ignored). Pure: never changes the learner."""
        ...

    def learn(self, batch: Batch) -> None:
        """Learns the labelled rows, in order, one by one as far as results go."""
        ...

    def interleave(self, events: Batch, examples: Batch, order: BoolArray) -> Predictions:
        """`order[i]` False: predict the next event; True: learn the next example. The result, and the
        state after, equal doing them one by one. Returns the events' scores, in their order, each as
        wide as `examples.n_classes`. `events` and `examples` may be the same rows."""
        ...

    def state(self) -> State:
        """Everything that `build` needs to go on identically: plain data and arrays, not shared with
        the learner (it may go on learning while the state is written out)."""
        ...
