"""The servers that `serving.py` asks, each run as a process: `serving_servers.py NAME PORT`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # this folder's `serving.py` would hide the package

NUMBERS = tuple(f"n{i}" for i in range(8))
FEATURES: dict[str, str] = {**dict.fromkeys(NUMBERS, "float"), "carrier": "category", "origin": "category"}
CARRIERS, ORIGINS = ("UA", "AA", "DL", "B6", "WN"), ("JFK", "LGA", "EWR")


def learner() -> Any:
    """The model that all servers answer with: 5,000 made-up rows learned, the same in every process."""
    import numpy as np

    from core.batch import Batch
    from core.config import LearnerConfig
    from core.plain import objects
    from core.schema import parse_schema
    from learners.registry import build

    rng = np.random.default_rng(7)
    n = 5_000
    X = rng.normal(1_000.0, 250.0, (n, len(NUMBERS)))
    cells = np.empty((n, 2), dtype=object)
    cells[:, 0] = rng.choice(CARRIERS, n).tolist()
    cells[:, 1] = rng.choice(ORIGINS, n).tolist()
    y = (X[:, 0] + 80.0 * (cells[:, 0] == "UA") > 1_010.0).astype(np.int64)
    ids, ts_ms = objects([str(i) for i in range(n)]), np.arange(n, dtype=np.int64)
    made = build(LearnerConfig(kind="linear"), parse_schema(FEATURES), "binary", 0, None)
    made.learn(Batch(ids, ts_ms, X, cells, y, 2))
    return made


def serve_riverrun(port: int) -> None:
    from core.config import FieldsConfig, LabelFieldsConfig, LimitsConfig
    from core.rollout import Assignment, Rollout
    from core.schema import parse_schema
    from serving.main import run_server
    from snapshots import codec
    from snapshots.open_store import open_store
    from snapshots.store import Snapshot

    schema = parse_schema(FEATURES)
    now_ms = time.time_ns() // 1_000_000
    manifest = {
        "format": 1,
        "model": "flights",
        "created_at_ms": now_ms,
        "trained_through_ms": now_ms,
        "turn": 1,
        "parent": 0,
        "task": "binary",
        "schema": schema.state(),
        "schema_digest": schema.digest(),
        "classes": [False, True],
        "limits": LimitsConfig().model_dump(),
        "learner": {"kind": "linear"},
        "seed": 0,
        "events": "events",
        "labels": "labels",
        "fields": FieldsConfig().model_dump(),
        "label_fields": LabelFieldsConfig().model_dump(),
        "lineages": {"a": {"part": "learner/a", "examples": 5_000, "born_at_ms": now_ms, "metrics": {}}},
        "metrics": {},
        "baselines": {},
        "drift": {},
        "counters": {},
        "lag": {},
    }
    store = open_store("memory://")
    epoch = store.ownership.acquire("flights", "benchmark", 60.0)
    assert epoch is not None
    parts = {"learner/a": codec.encode(learner().state())}
    number = store.snapshots.publish(Snapshot("flights", 0, manifest, parts), epoch)
    store.snapshots.set_rollout("flights", Rollout(1, Assignment("a", number)), Rollout(), epoch)
    run_server(store.snapshots, ["flights"], lambda _topic, _records: None, port=port)


def serve_fastapi(port: int) -> None:
    import numpy as np
    import pydantic
    import uvicorn
    from fastapi import FastAPI

    from core.batch import Batch
    from core.plain import objects

    numbers: dict[str, Any] = dict.fromkeys(NUMBERS, (float, ...))
    Features = pydantic.create_model("Features", **numbers, carrier=(str, ...), origin=(str, ...))

    class Request(pydantic.BaseModel):
        id: str
        features: Features  # type: ignore[valid-type]

    class Prediction(pydantic.BaseModel):
        id: str
        label: bool
        probabilities: dict[str, float]

    class Response(pydantic.BaseModel):
        model: str
        version: int
        predictions: list[Prediction]

    model = learner()
    app = FastAPI()

    async def predict(request: Request) -> Response:
        row = request.features
        X = np.array([[getattr(row, name) for name in NUMBERS]])
        cells = np.array([[row.carrier, row.origin]], dtype=object)  # type: ignore[attr-defined]
        batch = Batch(objects([request.id]), np.zeros(1, dtype=np.int64), X, cells, None, 2)
        no, yes = model.predict(batch).scores[0].tolist()
        scored = Prediction(id=request.id, label=yes > no, probabilities={"false": no, "true": yes})
        return Response(model="flights", version=1, predictions=[scored])

    # Set by hand: these classes are local, which the names in annotations cannot tell FastAPI.
    predict.__annotations__ = {"request": Request, "return": Response}
    app.post("/v1/models/flights/predict")(predict)
    uvicorn.run(app, port=port, loop="uvloop", http="httptools", access_log=False, log_level="error")


def serve_asgi(port: int) -> None:
    import numpy as np
    import orjson
    import uvicorn

    from core.batch import Batch
    from core.plain import objects

    model = learner()

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        request = orjson.loads((await receive())["body"])
        row = request["features"]
        X = np.array([[row[name] for name in NUMBERS]])
        cells = np.array([[row["carrier"], row["origin"]]], dtype=object)
        batch = Batch(objects([request["id"]]), np.zeros(1, dtype=np.int64), X, cells, None, 2)
        no, yes = model.predict(batch).scores[0].tolist()
        scored = {"id": request["id"], "label": yes > no, "probabilities": {"false": no, "true": yes}}
        body = orjson.dumps({"model": "flights", "version": 1, "predictions": [scored]})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(
        app,
        port=port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="error",
        lifespan="off",
    )


if __name__ == "__main__":
    {"riverrun": serve_riverrun, "fastapi": serve_fastapi, "asgi": serve_asgi}[sys.argv[1]](int(sys.argv[2]))
