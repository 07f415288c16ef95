"""Records into Redis: a stream a camera for results, one stream for events, one hash for the cameras' states.

Keys and fields (all values are text):

    {prefix}:results:{camera}   stream   label, score (of the best label; empty and 0.0 where there is none), data (a Result as JSON)
    {prefix}:events             stream   kind, camera, data (an Event as JSON)
    {prefix}:cameras            hash     camera -> a CameraState as JSON

With `pubsub` each `data` is also published on a channel named like its key; that is best effort, and after a failure may come twice.
The user needs the commands XADD, XINFO and XRANGE on the streams, HSET and HDEL on the hash, and PUBLISH for `pubsub`.

One task owns the connection. It sends whatever waits, at once, in a pipeline; while replies are under way the next pipeline collects.
A connection that fails, or whose use is cancelled, is never used again. See streamd/sinks/lanes.py for why nothing is lost or doubled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import structlog

from streamd.config.types import RedisConfig
from streamd.records import Record
from streamd.redisio import Address, Backoff, Command, Connection, RedisUnavailable, ServerError
from streamd.sinks.base import Ack, Dropped, Found, Lost, Written
from streamd.sinks.lanes import Attempt, Lane, Settled, StreamLane
from streamd.sinks.outages import Outages
from streamd.sinks.overflow import Overflow, SpoolPlace
from streamd.sinks.queue import Queue

BATCH = 500
"""Records of a pipeline at most."""
TIMEOUT_S = 2.0
IDLE_S = 15.0
"""A connection that was silent for longer is tried with a PING first: Redis and firewalls close idle ones."""
_CLOSING_PAUSE_S = 0.2
_REPLAY_PAUSE_S = 0.02

log = structlog.get_logger(__name__)


class RedisSink:
    """Implements Sink. While Redis is away records go to the spool; without one the queue in memory fills, to `max_queue` records, and then
    the oldest results make way.
    """

    def __init__(
        self, config: RedisConfig, *, written: Written, dropped: Dropped, lost: Lost, found: Found, spool: SpoolPlace | None = None
    ) -> None:
        """Raises RedisAddressError."""
        password = config.password.get_secret_value() if config.password else None
        self._address = Address(config.url, username=config.username, password=password)
        self._place = str(self._address)
        self._config = config
        self._written = written
        self._dropped = dropped
        self._found = found
        self._queue = Queue(config)
        self._overflow = None if spool is None else Overflow(spool, self._queue, lost=lost)
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._used_s = 0.0
        self._backoff = Backoff()
        self._batch = BATCH
        self._outages = Outages("redis")
        self._has_conflict: set[str] = set()

    @property
    def queued(self) -> int:
        return self._queue.in_memory + self._queue.on_disk

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def last_error(self) -> str | None:
        """Why records cannot be written now, without credentials; None where they can."""
        return self._outages.reason

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="redis-sink")

    def put(self, record: Record) -> None:
        """Queue a record. An older state of the same camera that still waits is replaced."""
        if self._closed:
            self._dropped([record])
            return
        dropped = self._queue.put(record, refuse=self._overflow is not None and self._overflow.is_full)
        if dropped is not None:
            self._dropped([dropped])
        self._wake.set()

    async def close(self, *, timeout_s: float) -> int:
        """What Redis does not take in time goes to the spool; returns how many records are in neither. May be called again."""
        if self._closed:
            return self._queue.in_memory
        self._closing.set()
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout_s)
            while not self._task.done():  # more than once: what it awaits may swallow a cancellation
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=_CLOSING_PAUSE_S)
        self._closed = True
        if self._overflow is not None and self._task is not None:
            await self._overflow.spill(all_of_it=True)
            await self._overflow.close()
            if waiting := self._queue.on_disk:
                log.warning("results_wait_in_spool", count=waiting, hint="they are sent when streamd runs again")
        return self._queue.in_memory

    # --- the task

    async def _run(self) -> None:
        try:
            await self._resume()
            while await self._work():
                try:
                    await self._flush(await self._open())
                except RedisUnavailable as error:
                    self._batch = max(1, self._batch // 4)
                    if self._overflow is not None:
                        self._overflow.away()
                        if self._closing.is_set() and self._overflow.is_due:
                            return  # what is left goes to the spool
                        await self._overflow.spill()
                    await self._away(code=type(error).__name__, reason=str(error))
                except Exception as error:
                    # A bug, or a callback's: what waits is worth more than this task's life.
                    log.exception("redis_sink_failed")
                    await self._away(code=type(error).__name__, reason=type(error).__name__)
        finally:
            await self._drop_connection()

    async def _resume(self) -> None:
        """Take over what earlier processes left in the spool."""
        if self._overflow is not None:
            for key, stored in (await self._overflow.open()).items():
                self._queue.stream(key).moved(stored.rows)
                self._found(self._queue.camera_of(key), stored.rows)

    async def _work(self) -> bool:
        """Wait until something may be sent. False: nothing waits, and the sink is closing."""
        while True:
            self._wake.clear()
            lanes = self._queue.lanes()
            if not lanes:
                if self._closing.is_set():
                    return False
                await self._wake.wait()
                continue
            pause_s = min(lane.due_s for lane in lanes) - time.monotonic()
            if pause_s <= 0:
                return True
            await _wait(self._wake, timeout_s=pause_s)

    async def _open(self) -> Connection:
        connection = self._connection
        if connection is not None and time.monotonic() - self._used_s > IDLE_S:
            try:
                await connection.execute([("PING",)])
            except RedisUnavailable:
                connection = self._connection = None
        if connection is None:
            connection = Connection(self._address, timeout_s=TIMEOUT_S)
            await connection.open()
            self._connection = connection
        return connection

    async def _away(self, *, code: str, reason: str) -> None:
        await self._drop_connection()
        self._outages.failed(self._place, code=code, reason=reason, queued=self.queued)
        pause_s = self._backoff.next_s()
        if self._closing.is_set():
            await asyncio.sleep(min(pause_s, _CLOSING_PAUSE_S))
        else:
            await _wait(self._closing, timeout_s=pause_s)

    async def _drop_connection(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    # --- one pipeline

    async def _flush(self, connection: Connection) -> None:
        if self._overflow is not None:
            await self._overflow.spill()
        now_s = time.monotonic()
        lanes = [lane for lane in self._queue.lanes() if lane.due_s <= now_s]
        lanes = await self._with_last_ids(connection, lanes)
        share = max(1, self._batch // max(1, len(lanes)))
        if self._overflow is not None:
            await self._overflow.refill(lanes, share=share)
        # After an error a lane sends one record until one is written, so that its records stay in order as the error goes away.
        batch = [(lane, lane.take(1 if lane.due_s else share)) for lane in lanes]
        commands = [command for lane, attempts in batch for attempt in attempts for command in self._commands(lane, attempt)]
        if not commands:  # all that waits is on disk, and may not come faster
            await asyncio.sleep(_REPLAY_PAUSE_S)
            return
        if self._overflow is not None:
            await self._overflow.keep_ids(lanes)
        replies = iter(await connection.execute(commands))
        settled: list[tuple[Lane, Settled]] = []
        for lane, attempts in batch:
            own = []
            for _ in attempts:
                own.append(next(replies))
                if self._config.pubsub:
                    self._note(f"PUBLISH {lane.key}", next(replies))
            settled.append((lane, lane.settle(own)))
        await self._settle(settled)
        self._reached()
        await self._resolve_doubts(connection, [lane for lane in lanes if isinstance(lane, StreamLane)])

    async def _with_last_ids(self, connection: Connection, lanes: Sequence[Lane]) -> list[Lane]:
        """`lanes` without those whose stream's last id is needed and cannot be had."""
        asking = [lane for lane in lanes if isinstance(lane, StreamLane) and lane.needs_last_id]
        if not asking:
            return list(lanes)
        failed: set[str] = set()
        for lane, reply in zip(asking, await connection.execute([lane.last_id_command for lane in asking]), strict=True):
            error = lane.learn_last_id(reply)
            if error is not None:
                failed.add(lane.key)
                self._fail(lane, error)
        self._reached()
        return [lane for lane in lanes if lane.key not in failed]

    async def _resolve_doubts(self, connection: Connection, lanes: Sequence[StreamLane]) -> None:
        asking = [(lane, doubts) for lane in lanes if (doubts := lane.doubts)]
        if asking:
            replies = iter(await connection.execute([doubt for _, doubts in asking for doubt in doubts]))
            await self._settle([(lane, lane.resolve([next(replies) for _ in doubts])) for lane, doubts in asking])

    def _commands(self, lane: Lane, attempt: Attempt) -> list[Command]:
        return [attempt.command, ("PUBLISH", lane.key, attempt.data)] if self._config.pubsub else [attempt.command]

    def _reached(self) -> None:
        """Redis answered."""
        self._used_s = time.monotonic()
        self._backoff.reset()
        self._batch = min(BATCH, self._batch * 2)
        if self._overflow is not None:
            self._overflow.back()
        self._outages.worked(self._place, queued=self.queued)

    async def _settle(self, settled: Sequence[tuple[Lane, Settled]]) -> None:
        acked_ns = time.monotonic_ns()
        written = [entry for _, outcome in settled for entry in outcome.written]
        self._queue.in_memory -= len(written)
        for lane, outcome in settled:
            if outcome.error is not None:
                self._fail(lane, outcome.error)
            elif outcome.written:
                lane.due_s = 0.0
                lane.backoff.reset()
                self._outages.worked(lane.key, queued=self.queued)
                if self._overflow is not None:
                    self._overflow.worked(lane.key)
            if outcome.conflict and lane.key not in self._has_conflict:
                self._has_conflict.add(lane.key)
                hint = "another daemon writes to the same stream: give each its own redis.prefix"
                log.warning("redis_stream_has_another_writer", key=lane.key, hint=hint)
        if self._overflow is not None:
            await self._overflow.remove(written)  # before they count as written: a crash in between must not count them twice
        if written:
            self._written([Ack(entry.record, None if entry.put_ns is None else acked_ns - entry.put_ns) for entry in written])

    def _fail(self, lane: Lane, error: ServerError) -> None:
        lane.due_s = time.monotonic() + lane.backoff.next_s()
        if self._overflow is not None:
            self._overflow.failed(lane.key)
        self._note(lane.key, error)

    def _note(self, place: str, reply: Any) -> None:
        if isinstance(reply, ServerError):
            self._outages.failed(place, code=reply.code, reason=f"{place}: {reply}", queued=self.queued)
        else:
            self._outages.worked(place, queued=self.queued)


async def _wait(event: asyncio.Event, *, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
