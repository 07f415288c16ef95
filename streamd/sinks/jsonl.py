"""Records as JSON lines, appended to a file or written to standard output: see streamd/sinks/payload.py for a line.

Each record is one write, so the lines of several processes do not mix: in a file never, in a pipe not up to 4096 bytes a line (PIPE_BUF).
A thread writes, since a disk or the reader of a pipe may block; the loop never waits. A file that cannot be opened or written is tried
again; a pipe that nobody reads any more is given up for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from streamd.config.types import JsonlConfig
from streamd.records import Record, Result
from streamd.sinks.base import Ack, Dropped, Written
from streamd.sinks.outages import Outages
from streamd.sinks.payload import line

MAX_QUEUE = 10_000
"""Records that wait at most; beyond it the oldest results make way."""
RETRY_S = 0.5
_TAKE = 100
_STDOUT = 1

log = structlog.get_logger(__name__)


class _Put(NamedTuple):
    """A record and when it came."""

    record: Record
    at_ns: int


class JsonlSink:
    """Implements Sink. `put` and the callbacks run on the loop, everything that touches the file in the thread."""

    def __init__(self, config: JsonlConfig, *, written: Written, dropped: Dropped) -> None:
        self._path = config.path
        self._written = written
        self._dropped = dropped
        self._outages = Outages("jsonl")
        self._thread = threading.Thread(target=self._run, name="jsonl-sink", daemon=True)
        self._ended = asyncio.Event()
        # Under the lock of `_changed`:
        self._changed = threading.Condition()
        self._waiting: deque[_Put] = deque()
        self._writing: Sequence[_Put] = ()
        self._is_closing = False  # end when all is written
        self._is_over = False  # end now; what comes is dropped

    @property
    def queued(self) -> int:
        return len(self._waiting) + len(self._writing)

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def put(self, record: Record) -> None:
        dropped: list[Record] = []
        with self._changed:
            if self._is_over:
                dropped.append(record)
            else:
                self._waiting.append(_Put(record, time.monotonic_ns()))
                if self.queued > MAX_QUEUE:
                    dropped.append(self._take_oldest())
                self._changed.notify()
        if dropped:
            self._dropped(dropped)

    async def close(self, *, timeout_s: float) -> int:
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._ended.wait()
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread.is_alive():  # it looks up often, unless the disk blocks; then it ends with the process
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * RETRY_S):
                    await self._ended.wait()
        return self.queued

    def _take_oldest(self) -> Record:
        """The oldest result, taken out of the queue; the oldest record where no result waits."""
        at = next((index for index, waiting in enumerate(self._waiting) if isinstance(waiting.record, Result)), 0)
        record = self._waiting[at].record
        del self._waiting[at]
        return record

    # --- the thread

    def _run(self) -> None:
        fd = self._open()
        if fd is not None:
            while records := self._take():
                self._write_all(fd, records)
            if fd != _STDOUT:
                os.close(fd)
        self._on_loop(self._ended.set)

    def _open(self) -> int | None:
        """The file, as soon as it can be opened; None where the sink is over before."""
        if self._path == "-":
            return _STDOUT
        while True:
            try:
                fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                if not self._pause(error):
                    return None
            else:
                self._outages.worked(self._path, queued=self.queued)
                return fd

    def _take(self) -> Sequence[_Put]:
        """Some records, now `_writing`; none where there is nothing left to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closing or self._is_over)
            if self._is_over:
                return ()
            self._writing = [self._waiting.popleft() for _ in range(min(_TAKE, len(self._waiting)))]
            return self._writing

    def _write_all(self, fd: int, records: Sequence[_Put]) -> None:
        count = 0
        try:
            while count < len(records) and self._write(fd, line(records[count].record)):
                count += 1
        except BrokenPipeError:
            self._give_up(records[count:])
        acked_ns = time.monotonic_ns()
        done = [Ack(record, acked_ns - at_ns) for record, at_ns in records[:count]]
        with self._changed:
            self._writing = () if self._writing is not records else records[count:]
        if done:
            self._on_loop(lambda: self._written(done))

    def _write(self, fd: int, text: bytes) -> bool:
        """Write all of `text`, however long it takes; False where the sink is over before. Raises BrokenPipeError."""
        while text:
            if not self._wait_writable(fd):
                return False
            try:
                text = text[os.write(fd, text) :]
            except BlockingIOError:  # somebody made standard output non-blocking, and another writer was faster
                continue
            except BrokenPipeError:
                raise
            except OSError as error:
                if not self._pause(error):
                    return False
        self._outages.worked(self._path, queued=self.queued)
        return True

    def _wait_writable(self, fd: int) -> bool:
        """Wait until a write does not block; False where the sink is over before."""
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        while not poll.poll(RETRY_S * 1000):
            if self._is_over:
                return False
            self._outages.failed(self._path, code="slow", reason=f"{self._path}: its reader does not read", queued=self.queued)
        return True

    def _pause(self, error: OSError) -> bool:
        """Wait before the next attempt; False where the sink is over."""
        reason = error.strerror or type(error).__name__
        self._outages.failed(self._path, code=reason, reason=f"{self._path}: {reason}", queued=self.queued)
        with self._changed:
            return not self._changed.wait_for(lambda: self._is_over, timeout=RETRY_S)

    def _give_up(self, unwritten: Sequence[_Put]) -> None:
        """The reader of the pipe is gone, and no other can come."""
        log.error("jsonl_reader_gone", path=self._path, hint="nothing more is written there; start again with a reader")
        with self._changed:
            self._is_over = True
            dropped = [waiting.record for waiting in (*unwritten, *self._waiting)]
            self._waiting.clear()
            self._writing = ()
        self._on_loop(lambda: self._dropped(dropped))

    def _on_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it
            self._loop.call_soon_threadsafe(call)
