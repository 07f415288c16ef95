"""The typed reader of what streamd writes to Redis, for consumers: results, events, and the cameras' current states.

    async for entry in Client("redis://127.0.0.1:6379/0").results("door", "yard"):
        print(entry.id, entry.record.labels)

It survives restarts of Redis: it reconnects for as long as it takes and goes on after the last entry it gave out, so nothing comes
twice. What Redis trimmed meanwhile (`max_entries`) is gone. A wrong password and a key of the wrong kind are raised, not retried.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from streamd.records import CameraState, Event, Result
from streamd.redisio import Address, Backoff, Connection, RedisRefused, RedisUnavailable, Reply, ServerError

R = TypeVar("R", Result, Event)

BLOCK_MS = 1000
"""How long Redis holds an answer back where there is nothing new; new cameras are looked for as often."""
COUNT = 500
"""Entries of a stream in one answer at most."""
_TIMEOUT_S = 5.0
_NEW_ONLY = "$"
_FROM = re.compile(r"\$|\d+(-\d+)?")
_PASSING = frozenset({"LOADING", "MASTERDOWN", "UNBLOCKED", "BUSY", "TRYAGAIN"})
"""Error replies that are over by themselves."""

log = logging.getLogger(__name__)  # not structlog: a consumer's program has its own logging


@dataclass(frozen=True, slots=True)
class Entry(Generic[R]):
    """A record and its place in its stream."""

    id: str
    """Increases with each entry of a camera, or of the events; as `from_` it means: go on after this one."""
    record: R


class Client:
    """Reading changes nothing in Redis. Each iteration has a connection of its own, so several may run at once."""

    def __init__(self, url: str, *, prefix: str = "streamd", username: str | None = None, password: str | None = None) -> None:
        """Does not connect yet. Raises RedisAddressError.

        Args:
            url: redis://, rediss:// or unix://.
            prefix: start of every key, as in the daemon's configuration.
            username: instead of one in the url.
            password: instead of one in the url.
        """
        self._address = Address(url, username=username, password=password)
        self._prefix = prefix

    async def ping(self) -> None:
        """Raises RedisUnavailable where Redis cannot be reached now, RedisRefused where it does not let us in."""
        async with self._connection() as connection:
            await _ask(connection, ("PING",))

    async def cameras(self) -> dict[str, CameraState]:
        """The state of each camera now, by name. Raises RedisUnavailable, RedisRefused."""
        async with self._connection() as connection:
            reply = await _ask(connection, ("HGETALL", f"{self._prefix}:cameras"))
        decoder = msgspec.json.Decoder(CameraState)
        states = {}
        for name, data in zip(map(bytes.decode, reply[::2]), reply[1::2], strict=True):
            try:
                states[name] = decoder.decode(data)
            except msgspec.DecodeError as error:
                log.warning("%s:cameras %s is passed over, it is not ours: %s", self._prefix, name, error)
        return states

    def results(self, *cameras: str, from_: str = _NEW_ONLY) -> AsyncGenerator[Entry[Result], None]:
        """Results as they come, for ever. Without names: of all cameras, those that are added later too.

        `from_` is `$` for new ones only, `0` for all that Redis holds, or the id of the entry to go on after. Raises RedisRefused.
        """
        return self._entries(Result, [self._results_key(name) for name in cameras] or None, from_=from_)

    def events(self, *, from_: str = _NEW_ONLY) -> AsyncGenerator[Entry[Event], None]:
        """Events as they come, for ever; `from_` as for `results`. Raises RedisRefused."""
        return self._entries(Event, [f"{self._prefix}:events"], from_=from_)

    def _results_key(self, camera: str) -> str:
        return f"{self._prefix}:results:{camera}"

    def _connection(self) -> Connection:
        return Connection(self._address, timeout_s=_TIMEOUT_S)

    async def _discovered(self, connection: Connection) -> list[str]:
        return [self._results_key(name.decode()) for name in await _ask(connection, ("HKEYS", f"{self._prefix}:cameras"))]

    def _entries(self, kind: type[R], keys: Sequence[str] | None, *, from_: str) -> AsyncGenerator[Entry[R], None]:
        if not _FROM.fullmatch(from_):
            raise ValueError(f"from_ must be `$`, `0` or the id of an entry, not {from_!r}")

        async def wanted(connection: Connection) -> Sequence[str]:
            return keys or await self._discovered(connection)

        return _decoded(_Feed(self._connection, wanted, from_=from_), msgspec.json.Decoder(kind))


async def _decoded(feed: _Feed, decoder: msgspec.json.Decoder[R]) -> AsyncGenerator[Entry[R], None]:
    try:
        while True:
            for key, entry_id, data in await feed.read():
                try:
                    record = decoder.decode(data)
                except msgspec.DecodeError as error:
                    log.warning("%s %s is passed over, it is not ours: %s", key, entry_id, error)
                    continue
                yield Entry(entry_id, record)
    finally:
        await feed.close()


class _Feed:
    """Entries of several streams, each once, over as many connections as it takes."""

    def __init__(self, connect: Callable[[], Connection], wanted: Callable[[Connection], Awaitable[Sequence[str]]], *, from_: str) -> None:
        self._connect = connect
        self._wanted = wanted
        self._from = from_
        self._after: dict[str, str] = {}
        self._late: str | None = None
        """Where streams begin that appear after the first look; None before it."""
        self._connection: Connection | None = None

    async def read(self) -> Iterator[tuple[str, str, bytes]]:
        """Key, id and `data` of the entries that come next, for as long as that takes. Raises RedisRefused."""
        backoff = Backoff()
        is_away = False
        while True:
            try:
                reply = await self._read()
            except RedisRefused:
                raise
            except RedisUnavailable as error:
                if not is_away:
                    log.warning("Redis is away, trying again: %s", error)
                is_away = True
                await self.close()
                await asyncio.sleep(backoff.next_s())
                continue
            if is_away:
                log.warning("Redis is back")
                is_away = False
            if reply:
                return self._advance(reply)

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def _read(self) -> Any:
        """What XREAD replies: None where nothing came."""
        if self._connection is None:
            self._connection = self._connect()
            await self._connection.open()
        connection = self._connection
        await self._take_up(connection, [key for key in await self._wanted(connection) if key not in self._after])
        if not self._after:
            await asyncio.sleep(BLOCK_MS / 1000)
            return None
        return await _ask(connection, ("XREAD", "COUNT", COUNT, "BLOCK", BLOCK_MS, "STREAMS", *self._after, *self._after.values()))

    async def _take_up(self, connection: Connection, keys: Sequence[str]) -> None:
        """`$` is made an id here: repeated in XREAD it would skip what comes between two of them."""
        if self._from != _NEW_ONLY:
            self._after |= dict.fromkeys(keys, self._from)
        elif self._late is not None:
            self._after |= dict.fromkeys(keys, self._late)
        else:
            now, *infos = await connection.execute([("TIME",), *(("XINFO", "STREAM", key) for key in keys)])
            self._after |= {key: _last_id(info) for key, info in zip(keys, infos, strict=True)}
            seconds, microseconds = map(int, _accepted(now))
            # A camera that is found later may have begun since this moment.
            self._late = f"{seconds * 1000 + microseconds // 1000}-0"

    def _advance(self, reply: Any) -> Iterator[tuple[str, str, bytes]]:
        for raw_key, entries in reply:
            key = raw_key.decode()
            for raw_id, fields in entries:
                self._after[key] = raw_id.decode()
                yield key, self._after[key], dict(zip(fields[::2], fields[1::2], strict=True)).get(b"data", b"")


async def _ask(connection: Connection, command: tuple[str | int, ...]) -> Any:
    (reply,) = await connection.execute([command])
    return _accepted(reply)


def _accepted(reply: Reply) -> Any:
    if isinstance(reply, ServerError):
        raise (RedisUnavailable if reply.code in _PASSING else RedisRefused)(str(reply))
    return reply


def _last_id(info: Reply) -> str:
    if isinstance(info, ServerError) and "no such key" in info.message:
        return "0-0"
    fields = _accepted(info)
    last: bytes = dict(zip(fields[::2], fields[1::2], strict=True))[b"last-generated-id"]
    return last.decode()
