"""The turns of a model in a Redis stream, fenced in one round trip.

The stream's key carries the owner's epoch, `journal:<epoch>`; acquiring the model makes the epoch grow and
renames the stream, in one transaction. An append is `XADD NOMKSTREAM` to the writer's own key: once
somebody else owns the model that key is gone, and Redis adds nothing. There is no moment between a check
and a write, so no pause can fall into it. Epochs never come back, so neither does a key.

An entry's id is the turn's number: Redis itself refuses one that is not above the last, so an append that
arrives late, after its sender had given it up and sent it again, is never journaled twice.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import redis

from core.errors import Conflict, CorruptSnapshot, StoreError, StoreUnavailable
from core.records import Turn
from snapshots.redis_client import Keys, Pipe, RedisClient, number
from snapshots.sealed import decode_turn, encode_turn

_PAGE = 500  # turns a read takes at a time


class RedisJournal:
    """A Journal in Redis."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._last: dict[str, tuple[int, int | None]] = {}  # model: epoch, number of its last turn
        self._unsure: dict[str, bytes] = {}  # model: a turn whose append got no answer

    def append(self, model: str, turn: Turn, epoch: int) -> None:
        data = encode_turn(turn)
        with self._lock:
            try:
                self._append(model, turn.number, data, epoch)
            except StoreUnavailable:
                self._last.pop(model, None)
                self._unsure[model] = data
                raise
            except StoreError:
                self._last.pop(model, None)
                raise
            self._last[model] = (epoch, turn.number)
            self._unsure.pop(model, None)

    def _append(self, model: str, turn_number: int, data: bytes, epoch: int) -> None:
        known_epoch, last = self._last.get(model, (-1, None))
        if known_epoch != epoch:
            last, newest = self._newest(model, epoch)
            if last == turn_number and newest is not None and newest == self._unsure.get(model):
                return  # the append that got no answer had been done
        if last is not None and turn_number != last + 1:
            raise Conflict(f"journal of {model}: turn {turn_number} does not follow turn {last}")
        with self._client.errors():
            try:
                added = self._client.redis.xadd(
                    Keys(model).journal(epoch), {b"t": data}, id=_id(turn_number), nomkstream=True
                )
            except redis.ResponseError as error:
                if "equal or smaller" in str(error):
                    raise Conflict(f"journal of {model}: turn {turn_number} is there already") from None
                raise
            if added is None:
                self._client.require_epoch(model, epoch, self._client.redis.get(Keys(model).epoch))
                raise CorruptSnapshot(f"journal of {model}: gone from the store; acquire the model again")

    def _newest(self, model: str, epoch: int) -> tuple[int | None, bytes | None]:
        """Number and bytes of the newest turn ever journaled; its bytes may be trimmed away."""
        key = Keys(model).journal(epoch)

        def read(pipe: Pipe) -> tuple[int | None, bytes | None]:
            if not pipe.exists(key):
                raise CorruptSnapshot(f"journal of {model}: gone from the store; acquire the model again")
            last = _number(pipe.xinfo_stream(key)["last-generated-id"])
            entries = pipe.xrevrange(key, count=1)
            return last, entries[0][1][b"t"] if entries else None

        return self._client.transact([key], read, model=model, epoch=epoch)

    def read(self, model: str, after: int) -> Sequence[Turn]:
        keys = Keys(model)
        turns: list[Turn] = []
        with self._client.errors():
            epoch = number(self._client.redis.get(keys.epoch))
            while True:
                start = _id(max(after, -1) + 1)
                with self._client.redis.pipeline() as pipe:
                    pipe.xrange(keys.journal(epoch), start, "+", _PAGE)
                    pipe.get(keys.epoch)
                    entries, stored = pipe.execute()
                if number(stored) != epoch:  # renamed in between: what was read so far still holds
                    epoch = number(stored)
                    continue
                for entry_id, fields in entries:
                    turn = decode_turn(fields[b"t"])
                    if turn.number != _number(entry_id):
                        raise CorruptSnapshot(
                            f"journal of {model}: turn {turn.number} at {entry_id.decode()}"
                        )
                    turns.append(turn)
                if len(entries) < _PAGE:
                    return turns
                after = turns[-1].number

    def trim(self, model: str, upto: int, epoch: int) -> None:
        key = Keys(model).journal(epoch)

        def write(pipe: Pipe) -> None:
            pipe.multi()
            pipe.xtrim(key, minid=_id(upto + 1), approximate=False)

        self._client.transact([], write, model=model, epoch=epoch)


def _id(turn_number: int) -> str:
    # 0-0 is no id that Redis takes, 0-1 is.
    return f"{turn_number}-1"


def _number(entry_id: bytes) -> int | None:
    """The turn's number; None for the id of a stream that never had an entry."""
    turn_number, _, rest = entry_id.partition(b"-")
    return None if rest == b"0" else int(turn_number)
