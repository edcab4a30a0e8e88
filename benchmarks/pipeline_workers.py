"""One pipeline of `pipeline.py`, in a process of its own: `python pipeline_workers.py KIND KAFKA REDIS N`.
Prints one JSON object: examples, seconds and CPU seconds from the first record on, peak memory, accuracy."""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUMBERS = ("month", "weekday", "hour", "minute", "arrival_hour", "distance", "origin_delay", "carrier_delay")
STRINGS = ("carrier", "dest")
CARRIED, EVENTS, LABELS = "bench.flights", "bench.events", "bench.labels"
SNAPSHOT_EVERY = 5_000  # examples, of the plain loop; riverrun's default is by time
_BATCH = 4_096


class Meter:
    """Measures from `start` to `result`."""

    def start(self) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._cpu_s = usage.ru_utime + usage.ru_stime
        self._at_s = time.perf_counter()

    def result(self, examples: int, accuracy: float | None) -> dict[str, Any]:
        seconds = time.perf_counter() - self._at_s
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "examples": examples,
            "seconds": seconds,
            "cpu_s": usage.ru_utime + usage.ru_stime - self._cpu_s,
            "peak_mib": _peak_mib(),
            "accuracy": accuracy,
        }


def _peak_mib() -> float:
    """Of this process alone: the kernel's own high-water mark forgets what was before exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _consumer(kafka: str, topic: str) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": kafka.removeprefix("kafka://"),
            "group.id": f"bench-{os.getpid()}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,  # else it idles for a second whenever its queue was full
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def read_and_decode(kafka: str, redis_url: str, n: int) -> dict[str, Any]:
    """The limit: fetch batches of 4,096 and decode them into typed structs, nothing else."""
    import msgspec

    features = msgspec.defstruct(
        "Features", [(name, float) for name in NUMBERS] + [(name, str) for name in STRINGS], gc=False
    )
    event = msgspec.defstruct(
        "Event", [("id", str), ("ts", int), ("features", features), ("label", bool)], gc=False
    )
    decode = msgspec.json.Decoder(event).decode
    consumer = _consumer(kafka, CARRIED)
    meter, done = Meter(), 0
    while done < n:
        messages = consumer.consume(min(_BATCH, n - done), 1.0)
        if done == 0:
            meter.start()
        done += len([decode(message.value()) for message in messages])
    return meter.result(done, None)


def plain(kafka: str, redis_url: str, n: int) -> dict[str, Any]:
    """The loop people write: poll, orjson, River's scaler and logistic regression, a pickle in Redis."""
    import orjson
    import redis
    from river import linear_model, preprocessing

    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    store = redis.Redis.from_url(redis_url)
    consumer = _consumer(kafka, CARRIED)
    meter, done, right = Meter(), 0, 0
    while done < n:
        messages = consumer.consume(min(_BATCH, n - done), 1.0)
        if done == 0:
            meter.start()
        for message in messages:
            event = orjson.loads(message.value())
            given = event["features"]
            x = {name: given[name] for name in NUMBERS}
            y = event["label"]
            p = model.predict_proba_one(x)
            right += (p.get(True, 0.0) > 0.5) == y
            model.learn_one(x, y)
            done += 1
            if done % SNAPSHOT_EVERY == 0:
                store.set("model", pickle.dumps(model))
    return meter.result(done, right / done)


def riverrun(kafka: str, redis_url: str, n: int, *, kind: str, late: bool) -> dict[str, Any]:
    """The trainer as `riverrun train` runs it, journal, scores, detector and snapshots included."""
    from core.clock import SystemClock
    from core.config import ModelConfig, TrainerConfig
    from snapshots.open_store import open_store
    from stream.driver.process import tune_process
    from stream.driver.trainer import Trainer
    from stream.driver.warming import warm_up
    from stream.log.open_log import open_log

    steps = ["preprocessing.StandardScaler", "linear_model.LogisticRegression"]
    config = ModelConfig.model_validate(
        {
            "task": "binary",
            "events": EVENTS if late else CARRIED,
            "labels": LABELS if late else None,
            "features": dict.fromkeys(NUMBERS, "float"),
            "window": {"count": 1},
            "learner": {"kind": "linear"} if kind == "linear" else {"kind": "river", "steps": steps},
            "drift": {"on_drift": "alert"},
        }
    )
    warm_up(config)
    log, store = open_log(kafka), open_store(redis_url)
    watcher = _Watcher(n)
    read, started = log.read, False

    def timed_read(*arguments: Any) -> Any:
        """The clock starts with the first records, as it does for the other pipelines."""
        nonlocal started
        found = read(*arguments)
        if found and not started:
            started = True
            watcher.meter.start()
        return found

    log.read = timed_read  # type: ignore[method-assign]
    name = f"bench-{os.getpid()}"
    trainer = Trainer(
        name, config, TrainerConfig(), log, store, SystemClock(), "bench", f"bench-{os.getpid()}", watcher
    )
    _warm_fold(config)
    tune_process()
    thread = threading.Thread(target=trainer.run)
    thread.start()
    watcher.done.wait()
    result = watcher.meter.result(watcher.learned, watcher.accuracy)
    trainer.stop()
    thread.join()
    log.close()
    store.close()
    return result


def _warm_fold(config: Any) -> None:
    """Compiles what a fold uses, as a service that has been up for a second has."""
    import numpy as np

    from core.clock import SystemClock
    from stream.driver.backtest import Backtest

    backtest = Backtest(config, SystemClock())
    features = dict.fromkeys(NUMBERS, 1.0)
    values = [
        json.dumps({"id": f"w{i}", "ts": i, "features": features, "label": bool(i % 2)}).encode()
        for i in range(64)
    ]
    backtest.feed({config.events: (values, [None] * 64, np.arange(64, dtype=np.int64))})
    backtest.report(1.0)


class _Watcher:
    """Stops the clock when everything is learned."""

    def __init__(self, n: int) -> None:
        self.meter = Meter()
        self.done = threading.Event()
        self.learned = 0
        self.accuracy: float | None = None
        self._n = n

    def owned(self, model: str, epoch: int, replayed: int) -> None: ...

    def stepped(self, model: str, fold: Any, effects: Any, seconds: float) -> None:
        self.learned = fold.learned
        if fold.learned >= self._n:
            self.accuracy = fold.contest.served.report()["accuracy"]
            self.done.set()

    def published(self, model: str, published: Any) -> None: ...
    def trouble(self, model: str, error: Any) -> None: ...
    def alive(self, model: str) -> None: ...


WORKERS: dict[str, Callable[[str, str, int], dict[str, Any]]] = {
    "read and decode": read_and_decode,
    "plain loop": plain,
    "riverrun linear": lambda k, r, n: riverrun(k, r, n, kind="linear", late=False),
    "riverrun river": lambda k, r, n: riverrun(k, r, n, kind="river", late=False),
    "riverrun linear, late labels": lambda k, r, n: riverrun(k, r, n, kind="linear", late=True),
}


if __name__ == "__main__":
    print(json.dumps(WORKERS[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))))
