"""The decode threads of a worker. Many cameras share few threads; each camera is a Strand that stays on its thread.

So a camera's frames are made on one thread, on that thread's CUDA stream, in order and without locks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)


class Work(Protocol):
    def step(self) -> bool:
        """Do a little; True when there is more to do right away."""
        ...

    def crashed(self, error: BaseException) -> None:
        """`step` raised; it will not be called again."""
        ...


class Strand:
    """Has `work.step` called on one thread of the pool; `wake` may be called from any thread, any number of times."""

    def __init__(self, work: Work, thread: _DecodeThread) -> None:
        self.work = work
        self.is_closed = False
        self._thread = thread

    def wake(self) -> None:
        """Have `step` called soon."""
        if not self.is_closed:
            self._thread.put(self)

    def close(self) -> None:
        """The strand is not needed any more: `step` is not called again, and its place on the thread is free for another one."""
        self.is_closed = True
        self._thread.strands.discard(self)


class _DecodeThread:
    """One thread and the strands that are due on it, each at most once, in the order of their wake-ups."""

    def __init__(self, name: str, prepare: Callable[[], None]) -> None:
        self.strands: set[Strand] = set()
        self._prepare = prepare
        self._due: deque[Strand] = deque()
        self._is_due: set[Strand] = set()
        self._ready = threading.Condition()
        self._stopping = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def put(self, strand: Strand) -> None:
        if strand in self._is_due:  # its next step has not begun, and will see what this wake-up is about
            return
        with self._ready:
            if strand in self._is_due:
                return
            self._is_due.add(strand)
            self._due.append(strand)
            if len(self._due) == 1:
                self._ready.notify()

    def stop(self) -> None:
        with self._ready:
            self._stopping = True
            self._ready.notify()

    def _run(self) -> None:
        self._prepare()
        while (strand := self._next()) is not None:
            try:
                more = not strand.is_closed and strand.work.step()
            except BaseException as error:  # noqa: BLE001 - one camera's fault must not end a thread that cameras share
                more = False
                strand.close()
                _report(strand.work, error)
            if more:
                strand.wake()

    def _next(self) -> Strand | None:
        """The strand that is due; woken during its step, it is due again. None at the end."""
        with self._ready:
            while not self._due and not self._stopping:
                self._ready.wait()
            if self._stopping:
                return None
            strand = self._due.popleft()
            self._is_due.discard(strand)
            return strand


def _report(work: Work, error: BaseException) -> None:
    try:
        work.crashed(error)
    except Exception:  # it closes a decoder that is broken already: that may fail too
        log.exception("crash_unreported", crash=repr(error))


class DecodePool:
    """`count` threads, from `start` to `stop`. Each calls `prepare` first."""

    def __init__(self, count: int, *, prepare: Callable[[], None] = lambda: None) -> None:
        self._threads = [_DecodeThread(f"decode-{number}", prepare) for number in range(count)]

    def start(self) -> None:
        for decoding in self._threads:
            decoding.thread.start()

    def strand(self, work: Work) -> Strand:
        """A strand for `work`, on the thread that has the fewest."""
        decoding = min(self._threads, key=lambda thread: len(thread.strands))
        strand = Strand(work, decoding)
        decoding.strands.add(strand)
        return strand

    def stop(self, *, timeout_s: float) -> bool:
        """End the threads; False when one did not end in time (a native call that does not return)."""
        for decoding in self._threads:
            decoding.stop()
        deadline_s = time.monotonic() + timeout_s
        for decoding in self._threads:
            decoding.thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(decoding.thread.is_alive() for decoding in self._threads)
