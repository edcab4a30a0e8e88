"""Paired evidence that a challenger is better, or worse, than the champion: valid at every look."""

from __future__ import annotations

import math

import numpy as np

from core.plain import FloatArray, State
from rollout import evidence_kernels as kernels


class PairedEvidence:
    """Bounds of the mean gain (champion's loss minus challenger's, on the same examples), by betting.

    One who starts with capital 1 and bets against "the mean gain is at most m" cannot expect to grow rich
    if that is true; by Ville's inequality the chance ever to reach 1 / alpha is at most alpha, however
    often one looks (Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting",
    sec. 4: the capital process, diversified over a grid of constant bets). The capital is bounded from
    below by its expansion to the fourth power of the gains, so four sums hold all that was seen, and
    every m can be asked for afterwards.

    Each of `lower` and `upper` alone holds with probability 1 - alpha over all time; they only tighten,
    at every 64th pair. Gains need not be independent nor of one distribution: if the challenger's expected
    gain, given the past, is never above `min_gain`, `wins(min_gain)` is ever true with probability at most
    alpha; the same for `loses`.
    """

    def __init__(self, alpha: float, bound: float = 1.0, state: State | None = None) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"alpha: between 0 and 1, not {alpha}")
        if not 0 < bound < math.inf:
            raise ValueError(f"bound: the largest loss, above 0, not {bound}")
        self.alpha = float(alpha)
        self.bound = float(bound)
        self._counts = np.zeros(2, np.int64)
        self._sums = np.zeros(4)
        self._bounds = np.array([-1.0, 1.0])
        if state is not None:
            self._counts = np.array(state["counts"], np.int64)
            self._sums = np.array(state["sums"], np.float64)
            self._bounds = np.array(state["bounds"], np.float64)

    @classmethod
    def from_state(cls, state: State) -> PairedEvidence:
        return cls(state["alpha"], state["bound"], state)

    def state(self) -> State:
        """Plain data, not shared with the evidence."""
        return {
            "alpha": self.alpha,
            "bound": self.bound,
            "counts": self._counts.copy(),
            "sums": self._sums.copy(),
            "bounds": self._bounds.copy(),
        }

    def update(self, champion_losses: FloatArray, challenger_losses: FloatArray) -> None:
        """Takes losses in [0, bound] (others are cut to it) of the same examples, in order. Pairs where
        either is NaN are left out and counted. Equal to taking them one pair at a time."""
        if len(champion_losses) != len(challenger_losses):
            raise ValueError(
                f"{len(champion_losses)} losses of the champion, {len(challenger_losses)} of the challenger"
            )
        gains = np.clip(champion_losses, 0.0, self.bound) - np.clip(challenger_losses, 0.0, self.bound)
        kernels.collect(
            gains / self.bound,
            self._counts,
            self._sums,
            self._bounds,
            -math.log(self.alpha),
            kernels.BETS,
            kernels.FOURTHS,
        )

    @property
    def n(self) -> int:
        """How many pairs were taken."""
        return int(self._counts[kernels.N])

    @property
    def left_out(self) -> int:
        """How many pairs had no two losses."""
        return int(self._counts[kernels.LEFT_OUT])

    @property
    def mean_gain(self) -> float:
        """The mean gain seen; 0 before the first pair."""
        return self.bound * float(self._sums[0]) / self.n if self.n else 0.0

    @property
    def lower(self) -> float:
        """What the mean gain is proven to exceed."""
        return self.bound * float(self._bounds[kernels.LOWER])

    @property
    def upper(self) -> float:
        """What the mean gain is proven to stay below."""
        return self.bound * float(self._bounds[kernels.UPPER])

    def wins(self, min_gain: float = 0.0) -> bool:
        """Whether the challenger is proven better by more than `min_gain`."""
        return self.lower > min_gain

    def loses(self) -> bool:
        """Whether the challenger is proven worse."""
        return self.upper < 0.0
