"""Replay buffers by the name of their policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from core.config import ReplayConfig
from core.errors import ConfigError
from core.plain import State
from replay.buffer import Buffer
from replay.recent import Recent
from replay.reservoir import Reservoir

_POLICIES: Mapping[str, Callable[[int, State | None], Buffer]] = {
    Reservoir.policy: Reservoir,
    Recent.policy: Recent,
}
POLICIES: tuple[str, ...] = tuple(_POLICIES)


def check(config: ReplayConfig) -> list[str]:
    """What is wrong with a buffer's configuration, in words; empty where nothing is."""
    if config.policy in _POLICIES:
        return []
    return [f'replay.policy: "{config.policy}" is not there yet; there are {", ".join(POLICIES)}']


def build(config: ReplayConfig, state: State | None = None) -> Buffer:
    """The buffer of a configuration, going on from `state`; the capacity may have changed, the policy not.
    Raises ConfigError otherwise."""
    if problems := check(config):
        raise ConfigError(problems)
    if state is not None and state["policy"] != config.policy:
        raise ConfigError(f'replay.policy: "{config.policy}", but the stored rows are of "{state["policy"]}"')
    return _POLICIES[config.policy](config.capacity, state)
