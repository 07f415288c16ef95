"""Between the lanes of a sink and the spool: what goes to disk, when it comes back, and how much may be there.

A lane's records go to disk when Redis has been failing for a second, when too many wait in memory, and at the end. From then on its new
records follow them there, until all have come back: so a stream's order is kept. Other lanes do not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from streamd.config.types import SpoolConfig
from streamd.records import Event, Result
from streamd.sinks.base import Lost
from streamd.sinks.lanes import Entry, Lane, StreamLane
from streamd.sinks.outages import Outages
from streamd.sinks.payload import payload
from streamd.sinks.queue import Queue
from streamd.sinks.spool import ROW_BYTES, Row, Spool, SpoolError, Stored
from streamd.types import DropReason

SPILL_AFTER_S = 1.0
"""How long writing must fail before records go to disk: a short restart of Redis does not touch it."""
SPILL_AT = 10_000
"""Records in memory from which they go to disk although Redis answers: it is too slow."""
_PREFETCH = 50
"""Rows of a lane that are loaded at once, at least."""
_CHUNK = 5_000
"""Rows written in one transaction."""
_BOUNDS_S = 1.0
"""How often age and room are looked at."""
_DROP_SHARE = 0.05
"""How much of the allowed size is freed at once when there is no more room."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SpoolPlace:
    """Where a sink's records may wait on disk."""

    path: Path
    config: SpoolConfig
    share: float
    """Which part of `max_bytes` is this process's."""
    owns: Callable[[str | None], bool]
    """Whether what earlier processes left there of a camera (None: of no camera) is for this one to send."""


class Overflow:
    """Used by the one task of a sink. `lost` hears of records that are given up on disk."""

    def __init__(self, place: SpoolPlace, queue: Queue, *, lost: Lost) -> None:
        self._queue = queue
        self._config = place.config
        self._owns = place.owns
        self._told_lost = lost
        self._spool = Spool(place.path)
        self._most_bytes = int(place.config.max_bytes * place.share)
        self._bytes = 0
        self._away_since_s: float | None = None
        self._failing_since_s: dict[str, float] = {}
        """By key: since when Redis refuses what is sent there."""
        self._removing: list[int] = []
        """Rows that Redis has, whose removal failed."""
        self._damaged = 0
        self._bounds_s = 0.0
        self._allowance = float(place.config.replay_rate)
        self._allowed_s = 0.0
        self._outages = Outages("spool")
        self._place = str(place.path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")

    @property
    def is_full(self) -> bool:
        """Whether new records are to be refused, as `on_full: stop_live` asks."""
        return self._config.on_full == "stop_live" and self._bytes >= self._most_bytes

    async def open(self) -> Mapping[str, Stored]:
        """What earlier processes left for this one, by key."""
        found = await self._call(self._spool.stored) or {}
        mine = {key: stored for key, stored in found.items() if self._owns(self._queue.camera_of(key))}
        self._bytes = sum(stored.bytes for stored in mine.values())
        if mine:
            log.info("spool_resumed", path=self._place, records=sum(stored.rows for stored in mine.values()), keys=len(mine))
        return mine

    # --- to disk

    def away(self) -> None:
        """Redis does not answer."""
        self._away_since_s = self._away_since_s or time.monotonic()

    def back(self) -> None:
        """Redis answers."""
        self._away_since_s = None

    def failed(self, key: str) -> None:
        """Redis refuses what is sent there."""
        self._failing_since_s.setdefault(key, time.monotonic())

    def worked(self, key: str) -> None:
        """Something was written there."""
        self._failing_since_s.pop(key, None)

    @property
    def is_due(self) -> bool:
        """Whether Redis has not answered for so long that records go to disk."""
        return self._away_since_s is not None and time.monotonic() - self._away_since_s >= SPILL_AFTER_S

    async def spill(self, *, all_of_it: bool = False) -> None:
        """Write to disk what has to go there."""
        crowded = self._queue.in_memory >= SPILL_AT
        everything = all_of_it or crowded or self.is_due
        if not (everything or self._failing_since_s or self._bytes):
            return
        now_s = time.monotonic()
        for lane in list(self._queue.streams.values()):
            fails = now_s - self._failing_since_s.get(lane.key, now_s) >= SPILL_AFTER_S
            if lane.in_memory and (everything or lane.on_disk or fails):
                await self._spill(lane)
        await self._keep_in_bounds()

    async def _spill(self, lane: StreamLane) -> None:
        entries = lane.take_for_disk()
        for first in range(0, len(entries), _CHUNK):
            chunk = entries[first : first + _CHUNK]
            rows = [(lane.key, entry.entry_id, payload(entry.record)) for entry in chunk]
            if not await self._done(partial(self._spool.append, rows)):
                lane.put_back(entries[first:])
                return
            lane.moved(len(chunk))
            self._queue.in_memory -= len(chunk)
            self._bytes += sum(_size(data) for _, _, data in rows)

    # --- and back

    async def refill(self, lanes: Iterable[Lane], *, share: int) -> None:
        """Load what is to be sent next of the lanes that have something on disk."""
        now_s = time.monotonic()
        rate = self._config.replay_rate
        self._allowance = min(rate, self._allowance + (now_s - self._allowed_s) * rate)
        self._allowed_s = now_s
        wanting = [lane for lane in lanes if isinstance(lane, StreamLane) and lane.on_disk and lane.in_head < share]
        for lane in wanting:
            limit = min(int(self._allowance), max(share, _PREFETCH))
            if limit <= 0:
                break
            rows = await self._call(partial(self._spool.load, lane.key, after=lane.last_row, limit=limit))
            if rows is None:
                break
            if not rows:  # somebody removed them
                self._lost(lane.key, lane.lost_disk(), DropReason.LOST_IN_CRASH)
            entries = [entry for row in rows if (entry := _entry(row, lane.holds)) is not None]
            lane.loaded(entries, rows=len(rows), last_row=rows[-1].row if rows else 0)
            self._queue.in_memory += len(entries)
            if len(entries) < len(rows):
                await self._unreadable(lane, [row for row in rows if row.row not in {entry.row for entry in entries}])
            self._allowance -= len(rows)

    async def _unreadable(self, lane: StreamLane, rows: Sequence[Row]) -> None:
        """A release that writes other records may have left these."""
        log.error("spool_records_unreadable", key=lane.key, count=len(rows), hint="they are given up")
        self._lost(lane.key, len(rows), DropReason.LOST_IN_CRASH)
        self._bytes -= sum(_size(row.data) for row in rows)
        self._removing += [row.row for row in rows]

    async def keep_ids(self, lanes: Iterable[Lane]) -> None:
        """Before they are sent: write down the ids of what is on disk.

        If that fails they are sent all the same: only a crash right then could double them.
        """
        unkept = [entry for lane in lanes if isinstance(lane, StreamLane) for entry in lane.unkept] if self._bytes else []
        if unkept and await self._done(partial(self._spool.set_ids, [(entry.row, entry.entry_id) for entry in unkept])):  # type: ignore[misc]
            for entry in unkept:
                entry.is_kept = True

    async def remove(self, entries: Iterable[Entry]) -> None:
        """Redis has these."""
        gone = [entry for entry in entries if entry.row is not None]
        self._removing += [entry.row for entry in gone if entry.row is not None]
        self._bytes -= sum(entry.size for entry in gone)
        if self._removing and await self._done(partial(self._spool.remove, self._removing)):
            self._removing = []

    async def _keep_in_bounds(self) -> None:
        """Give up what is too old, and the oldest where there is no more room. Looks once a second."""
        if time.monotonic() - self._bounds_s < _BOUNDS_S:
            return
        self._bounds_s = time.monotonic()
        on_disk = [lane for lane in self._queue.streams.values() if lane.on_disk]
        for lane in on_disk:
            gone = await self._call(partial(self._spool.expire, lane.key, after=lane.last_row, max_age_s=self._config.max_age))
            self._gave_up(lane, gone, DropReason.EXPIRED)
        while self._config.on_full == "drop_oldest" and self._bytes > self._most_bytes and any(lane.on_disk for lane in on_disk):
            longest = max(on_disk, key=lambda lane: lane.on_disk)
            rows = max(1, int(longest.on_disk * _DROP_SHARE))
            gone = await self._call(partial(self._spool.drop_oldest, longest.key, after=longest.last_row, rows=rows))
            if not gone or not gone.rows:
                break
            self._gave_up(longest, gone, DropReason.SINK_FULL)

    async def close(self) -> None:
        if not self._bytes:
            await self._call(self._spool.shrink)
        await self._call(self._spool.close)
        self._thread.shutdown(wait=False)

    def _gave_up(self, lane: StreamLane, gone: Stored | None, reason: DropReason) -> None:
        if gone and gone.rows:
            self._bytes -= gone.bytes
            lane.gave_up(gone.rows)
            self._lost(lane.key, gone.rows, reason)

    def _note_damage(self) -> None:
        if self._spool.damaged != self._damaged:
            self._damaged = self._spool.damaged
            self._bytes, self._removing = 0, []
            for lane in self._queue.streams.values():
                if lost := lane.lost_disk():
                    self._lost(lane.key, lost, DropReason.LOST_IN_CRASH)

    def _lost(self, key: str, count: int, reason: DropReason) -> None:
        self._told_lost(self._queue.camera_of(key), count, reason)

    async def _done(self, call: Callable[[], None]) -> bool:
        def work() -> bool:
            call()
            return True

        return await self._call(work) is True

    async def _call(self, call: Callable[[], T]) -> T | None:
        """What the spool answers; None where it cannot now, which is in the log. Not to be cancelled: what is on its way to disk must be
        known to be there or not.
        """
        answer = asyncio.get_running_loop().run_in_executor(self._thread, call)
        while not answer.done():
            with contextlib.suppress(asyncio.CancelledError):  # who cancels does so again
                await asyncio.wait({answer})
        try:
            result = answer.result()
        except SpoolError as error:
            self._outages.failed(self._place, code=type(error).__name__, reason=str(error), queued=self._queue.in_memory)
            self._note_damage()
            return None
        self._outages.worked(self._place, queued=self._queue.in_memory)
        return result


_DECODERS: dict[type, Callable[[bytes], Result | Event]] = {
    Result: msgspec.json.Decoder(Result).decode,
    Event: msgspec.json.Decoder(Event).decode,
}


def _entry(row: Row, kind: type) -> Entry | None:
    """None where what was written is no record of this release."""
    try:
        record = _DECODERS[kind](row.data)
    except msgspec.MsgspecError:
        return None
    return Entry(record, None, entry_id=row.entry_id, row=row.row, is_kept=row.entry_id is not None, size=_size(row.data))


def _size(data: bytes) -> int:
    return len(data) + ROW_BYTES
