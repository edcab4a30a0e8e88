"""Compiling beforehand what a first turn would wait for."""

from __future__ import annotations

import numpy as np

from core.config import ModelConfig
from drift.registry import build as build_detector
from learners import registry
from rollout.evidence import PairedEvidence


def warm_up(config: ModelConfig) -> None:
    """Lets everything compiled that this model's fold uses be compiled, or loaded from where an earlier
    run left it: some ten seconds the first time on a machine, parts of a second later."""
    registry.warm_up(config.learner, config.task)
    nothing = np.zeros(2)
    for spec in config.drift.detectors:
        build_detector(spec).update(nothing)
    PairedEvidence(0.05).update(nothing, nothing)
