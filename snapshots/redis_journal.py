"""The turns of a model in a Redis stream, fenced in one round trip.

The stream's key carries the owner's epoch, `journal:<epoch>`; acquiring the model makes the epoch grow and
renames the stream, in one transaction. An append is `XADD NOMKSTREAM` to the writer's own key: once
somebody else owns the model that key is gone, and Redis adds nothing. There is no moment between a check
and a write, so no pause can fall into it. Epochs never come back, so neither does a key.

An entry's id is the turn's number: Redis itself refuses one that is not above the last, so an append that
arrives late, after its sender had given it up and sent it again, is never journaled twice.

That a turn follows the last one is checked against the number kept from the last append. A server that
restarts may have lost its newest turns; but it also breaks the connection, which is the journal's own and
is never replaced in silence: the first append over a new one reads the last number again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import redis

from core.errors import Conflict, CorruptSnapshot, StaleEpoch, StoreError, StoreUnavailable
from core.records import Turn
from snapshots.redis_client import Keys, Pipe, RedisClient, number
from snapshots.sealed import decode_turn, encode_turn

_PAGE = 500  # turns a read takes at a time


class RedisJournal:
    """A Journal in Redis."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._connection: redis.Redis | None = None
        self._last: dict[str, tuple[int, int | None]] = {}  # model: epoch, number of its last turn
        self._unsure: dict[str, bytes] = {}  # model: a turn whose append got no answer

    def append(self, model: str, turn: Turn, epoch: int) -> None:
        data = encode_turn(turn)
        with self._lock:
            checked_before = model in self._last
            try:
                self._append(model, turn.number, data, epoch)
            except StoreUnavailable as error:
                # An idle connection that the server has closed: once more over a new one.
                if not (checked_before and isinstance(error.__cause__, redis.ConnectionError)):
                    raise
                self._append(model, turn.number, data, epoch)

    def _append(self, model: str, turn_number: int, data: bytes, epoch: int) -> None:
        try:
            if self._follows(model, turn_number, data, epoch):
                self._add(model, turn_number, data, epoch)
        except StoreUnavailable:
            self._disconnect()
            self._unsure[model] = data
            raise
        except StoreError:
            self._last.pop(model, None)
            raise
        self._last[model] = (epoch, turn_number)
        self._unsure.pop(model, None)

    def _follows(self, model: str, turn_number: int, data: bytes, epoch: int) -> bool:
        """Whether to add the turn; not where its last append had been done, although nobody said so."""
        if self._connection is None:
            with self._client.errors():
                self._connection = self._client.redis.client()
        known_epoch, last = self._last.get(model, (-1, None))
        if known_epoch != epoch:
            last, newest = self._newest(model, epoch)
            if last == turn_number and newest == data == self._unsure.get(model):
                return False
        if last is not None and turn_number != last + 1:
            raise Conflict(f"journal of {model}: turn {turn_number} does not follow turn {last}")
        return True

    def _add(self, model: str, turn_number: int, data: bytes, epoch: int) -> None:
        connection: Any = self._connection
        with self._client.errors():
            try:
                added = connection.xadd(
                    Keys(model).journal(epoch), {b"t": data}, id=_id(turn_number), nomkstream=True
                )
            except redis.ResponseError as error:
                if "equal or smaller" not in str(error):
                    raise
                if self._unsure.get(model) != data or self._newest(model, epoch) != (turn_number, data):
                    raise Conflict(f"journal of {model}: turn {turn_number} is there already") from None
                return
            if added is None:
                self._client.require_epoch(model, epoch, self._client.redis.get(Keys(model).epoch))
                raise StaleEpoch(f"{model}: its journal is gone from the store; acquire the model again")

    def _disconnect(self) -> None:
        self._last.clear()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._disconnect()

    def _newest(self, model: str, epoch: int) -> tuple[int | None, bytes | None]:
        """Number and bytes of the newest turn ever journaled; its bytes may be trimmed away."""
        key = Keys(model).journal(epoch)

        def read(pipe: Pipe) -> tuple[int | None, bytes | None]:
            if not pipe.exists(key):
                raise StaleEpoch(f"{model}: its journal is gone from the store; acquire the model again")
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
                with self._client.redis.pipeline(transaction=False) as pipe:
                    pipe.xrange(keys.journal(epoch), start, "+", _PAGE)
                    pipe.get(keys.epoch)  # after: epochs only grow, so the key was still the right one
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
        keys = Keys(model)
        # Fenced by the key, as appends are; and no transaction, which a full server would refuse.
        with self._client.errors():
            with self._client.redis.pipeline(transaction=False) as pipe:
                pipe.xtrim(keys.journal(epoch), minid=_id(upto + 1), approximate=False)
                pipe.get(keys.epoch)
                _, stored = pipe.execute()
            self._client.require_epoch(model, epoch, stored)


def _id(turn_number: int) -> str:
    # 0-0 is no id that Redis takes, 0-1 is.
    return f"{turn_number}-1"


def _number(entry_id: bytes) -> int | None:
    """The turn's number; None for the id of a stream that never had an entry."""
    turn_number, _, rest = entry_id.partition(b"-")
    return None if rest == b"0" else int(turn_number)
