"""Bad records among the demo's good ones, one of each kind in turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cli.file_events import FileChunk
from cli.files.wire import WireColumns

_GOOD = (
    b'"month":1,"weekday":1,"hour":5,"minute":15,"arrival_hour":8,"distance":1400.0,'
    b'"origin_delay":0.0,"carrier_delay":0.0,"carrier":"UA","origin":"EWR"'
)


def _event(features: bytes, identity: bytes = b'"bad"') -> bytes:
    return b'{"id":' + identity + b',"ts":1357016400000,"features":{' + features + b"}}"


# What was sent, and why it must be refused.
BAD: tuple[tuple[bytes, str], ...] = (
    (b"hello, this is not JSON", "malformed"),
    (b'{"id":"\xff\xfe"}', "not_utf8"),
    (_event(_GOOD), "missing_field"),
    (_event(_GOOD + b',"dest":null'), "wrong_type"),
    (_event(_GOOD + b',"dest":"IAH"').replace(b"1400.0", b'"far"'), "wrong_type"),
    (_event(_GOOD + b',"dest":"IAH"').replace(b"1400.0", b"NaN"), "malformed"),
    (_event(_GOOD + b',"dest":"IAH"').replace(b"1400.0", b"1e999"), "number_out_of_range"),
    (_event(_GOOD + b',"dest":"IAH"').replace(b'"minute":15', b'"minute":15.5'), "inexact_number"),
    (_event(_GOOD + b',"dest":"IAH"', b'"a\\nb"'), "bad_id"),
    (_event(_GOOD + b',"dest":' + b"[" * 2_000 + b"]" * 2_000), "too_deep"),
)


@dataclass(slots=True)
class Sprinkler:
    """Puts one bad event behind every `every`-th good one."""

    every: int
    injected: int = 0
    _passed: int = 0

    def sprinkle(self, chunk: FileChunk) -> FileChunk:
        """The chunk with bad events among its own."""
        n = len(chunk.events)
        after = [i for i in range(n) if (self._passed + i + 1) % self.every == 0]
        self._passed += n
        if not after:
            return chunk
        values, keys = list(chunk.events.values), list(chunk.events.keys)
        for place in reversed(after):
            values.insert(place + 1, b"")
            keys.insert(place + 1, b"bad")
        for shift, place in enumerate(after):
            values[place + 1 + shift] = BAD[self.injected % len(BAD)][0]
            self.injected += 1
        places = np.array(after)
        times = np.insert(chunk.events.timestamps_ms, places + 1, chunk.events.timestamps_ms[places])
        order = np.insert(chunk.order, np.flatnonzero(~chunk.order)[places] + 1, False)
        events = WireColumns(values, keys, times)
        return FileChunk(chunk.events_topic, chunk.labels_topic, events, chunk.labels, order)
