"""Settings of the process that a long-running role wants."""

from __future__ import annotations

import gc


def freeze_heap() -> None:
    """What was imported and built by now lives as long as the process: collections need not walk it. A
    walk takes some 60 ms, and reading a log makes objects fast enough to cause several a second."""
    gc.collect()
    gc.freeze()
