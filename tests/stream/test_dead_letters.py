"""Dead letters: the record as it was, where it lay, and why it was refused."""

from __future__ import annotations

from typing import Any

import pytest

from core.config import TrainerConfig
from core.records import Lane, OutRecord
from snapshots.open_store import open_store
from stream.log.log import Log
from stream.log.memory_log import MemoryLog
from stream.log.open_log import open_log
from tests.stream.fold_harness import config
from tests.stream.trainer_harness import MODEL, Bench

BAD: list[tuple[bytes, str]] = [
    (b"\xff\xfe\x00", "not_utf8"),
    (b"", "malformed"),
    (b'{"id":"a"', "malformed"),
    (b'{"id":"a","ts":1,"features":{}}', "missing_field"),
    (b'{"id":"a","ts":1,"features":{"x":"1"}}', "wrong_type"),
    (b'{"id":"a","ts":1,"features":{"x":1e999}}', "number_out_of_range"),
    (b'{"id":"a","ts":1.5,"features":{"x":1}}', "bad_timestamp"),
    (b'{"id":"\\u0000","ts":1,"features":{"x":1}}', "bad_id"),
    (b'{"id":"big","ts":1,"features":{"x":1},"more":"' + b"y" * 3_000 + b'"}', "too_large"),
    (b'{"id":"a","ts":1,"features":{"x":1},"more":' + b"[" * 99 + b"]" * 99 + b"}", "too_deep"),
]
GOOD = b'{"id":"%d","ts":1,"features":{"x":1}}'


@pytest.fixture(
    params=[
        "memory",
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("kafka", marks=pytest.mark.kafka),
    ]
)
def log(request: pytest.FixtureRequest) -> Any:
    kind = request.param
    log: Log = MemoryLog() if kind == "memory" else open_log(request.getfixturevalue(f"{kind}_url"))
    yield log
    log.close()


def test_every_bad_record_is_kept_with_its_place_and_reason(log: Log, topic: str) -> None:
    bench = Bench(
        log,
        open_store("memory://"),
        config(events=topic, labels=f"{topic}-l", limits={"max_bytes": 2_000, "max_depth": 32}),
        TrainerConfig.model_validate({"poll": 1 if isinstance(log, MemoryLog) else 200}),
        prefix=topic,
    )
    log.create(topic, 2)
    log.create(f"{topic}-l")
    want = {}
    for i, (value, reason) in enumerate(BAD):
        lane = Lane(topic, i % 2)
        log.append(topic, [OutRecord(GOOD % i, b"k", 1_000 + i, partition=i % 2)])
        offset = log.bounds(lane)[1]
        log.append(topic, [OutRecord(value, b"key-%d" % i, 1_000 + i, partition=i % 2)])
        want[topic.encode(), b"%d" % (i % 2), b"%d" % offset] = (value, reason.encode())
    label = log.bounds(Lane(f"{topic}-l", 0))[1]
    log.append(f"{topic}-l", [OutRecord(b'{"id":"0","ts":1,"label":"yes"}', None, 1_000)])
    want[f"{topic}-l".encode(), b"0", b"%d" % label] = (b'{"id":"0","ts":1,"label":"yes"}', b"wrong_type")
    watch = bench.train()
    assert watch.fold is not None
    assert watch.fold.events == len(BAD)
    rows = bench.out("deadletter")
    got = {}
    for value, h in rows:
        assert h["riverrun-model"] == MODEL.encode()
        assert h["riverrun-detail"]
        got[h["riverrun-topic"], h["riverrun-partition"], h["riverrun-offset"]] = (
            value,
            h["riverrun-reason"],
        )
    assert got == want
    marks = [(h["riverrun-turn"], int(h["riverrun-index"])) for _, h in rows]
    assert len(set(marks)) == len(rows) == len(want)
    for turn in {t for t, _ in marks}:
        indices = sorted(i for t, i in marks if t == turn)
        assert indices == list(range(len(indices)))
    assert watch.fold.dead_letters == {
        reason: [r for _, r in want.values()].count(reason.encode()) for reason in watch.fold.dead_letters
    }


@pytest.mark.parametrize("max_bytes", [400, 1_000, 100_000])
def test_a_letter_that_the_topic_cannot_take_keeps_what_fits(max_bytes: int) -> None:
    log = MemoryLog(max_record_bytes=1_000_000)
    bench = Bench(log, open_store("memory://"), config())
    log.create("e")
    log.create("l")
    huge = b'{"id":"a","more":"' + b"y" * 900_000
    log.append(
        "e", [OutRecord(huge, b"k" * 90_000, 1), OutRecord(b"{", b"small", 2), OutRecord(GOOD % 1, None, 3)]
    )
    log._max_record_bytes = max_bytes
    watch = bench.train()
    assert watch.fold is not None
    assert watch.fold.events == 1
    (cut, about), (small, _) = bench.out("deadletter")
    assert cut is not None
    assert huge.startswith(cut)
    assert about["riverrun-truncated-from"] == str(len(huge)).encode()
    assert small == b"{"
