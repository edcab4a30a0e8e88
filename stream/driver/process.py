"""Settings of the process that a trainer wants."""

from __future__ import annotations

import gc


def tune_process() -> None:
    """To be called once, when everything is imported and built. What exists by now lives as long as the
    process: collections need not walk it. A walk takes some 60 ms, and reading a log makes objects fast
    enough to cause several a second."""
    gc.collect()
    gc.freeze()
