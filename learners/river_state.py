"""States of River models as plain data, for snapshots: written and read without running
anything but registered classes' own restoring."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from core.errors import CorruptSnapshot
from core.plain import State
from learners.river_decoder import Decoder
from learners.river_encoder import Encoder

FORMAT: Final = 1


def encode(model: Any) -> State:
    """The model's state as plain data that shares nothing with it. Equal models give equal states.
    Raises ConfigError naming a part that has no registered class."""
    encoder = Encoder()
    root = encoder.run(model)
    return {"format": FORMAT, "river": version("river"), "nodes": encoder.nodes, "root": root}


def decode(state: State) -> Any:
    """The model of a state: it goes on exactly as the encoded one would have.
    Raises CorruptSnapshot for another format, another River, or anything malformed or unregistered."""
    if state.get("format") != FORMAT:
        raise CorruptSnapshot(f"state of a River model: format {state.get('format')!r}, not {FORMAT}")
    installed = version("river")
    if _release(str(state.get("river"))) != _release(installed):
        raise CorruptSnapshot(
            f"state of a River model: written by River {state.get('river')}, River {installed} is installed; "
            "rebuild the model from the log"
        )
    try:
        return Decoder(state["nodes"]).run(state["root"])
    except CorruptSnapshot:
        raise
    except Exception as error:
        raise CorruptSnapshot(f"state of a River model: {type(error).__name__}: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # what a Rust part raises at bytes it cannot read
            raise
        raise CorruptSnapshot("state of a River model: a compiled part refused its bytes") from error


def _release(text: str) -> str:
    """The part of a version within which River keeps its attributes."""
    return ".".join(text.split(".")[:2])
