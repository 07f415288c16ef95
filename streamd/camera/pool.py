"""The decode threads of a worker. Many cameras share few threads; each camera is a Strand that stays on its thread.

So a camera's frames are made on one thread, on that thread's CUDA stream, in order and without locks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from streamd.camera.turns import LEAST, MOST, Turns, Urgency

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

    def __init__(self, work: Work, thread: _DecodeThread, urgency: Callable[[], Urgency]) -> None:
        self.work = work
        self.is_closed = False
        self.urgency = urgency
        self.rank = urgency()[0]
        self._thread = thread

    def wake(self) -> None:
        """Have `step` called soon."""
        if not self.is_closed and self not in self._thread.due:  # due: its next step has not begun, and will see what this is about
            self._thread.put(self, self.urgency())

    def hasten(self) -> None:
        """As `wake`, before all others: there is something to end, which must not wait for a thread that is overloaded."""
        if not self.is_closed:
            self._thread.put(self, MOST)

    def close(self) -> None:
        """The strand is not needed any more: `step` is not called again, and its place on the thread is free for another one."""
        self.is_closed = True
        self._thread.strands.discard(self)


class _DecodeThread:
    """One thread and the strands that are due on it."""

    def __init__(self, name: str, prepare: Callable[[], None], on_idle: Callable[[], None]) -> None:
        self.strands: set[Strand] = set()
        self._prepare = prepare
        self._on_idle = on_idle
        self.due: Turns[Strand] = Turns()
        self._ready = threading.Condition()
        self._stopping = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def put(self, strand: Strand, urgency: Urgency) -> None:
        with self._ready:
            self.due.ask(strand, urgency)
            if len(self.due) == 1:
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
        """The strand whose turn it is; woken during its step, it is due again. None at the end."""
        if not self.due:
            self._on_idle()
        with self._ready:
            while not self.due and not self._stopping:
                self._ready.wait()
            if self._stopping:
                return None
            return self.due.next()


def _report(work: Work, error: BaseException) -> None:
    try:
        work.crashed(error)
    except Exception:  # it closes a decoder that is broken already: that may fail too
        log.exception("crash_unreported", crash=repr(error))


class DecodePool:
    """`count` threads, from `start` to `stop`. Each calls `prepare` first, and `on_idle` whenever no strand of it is due."""

    def __init__(self, count: int, *, prepare: Callable[[], None] = lambda: None, on_idle: Callable[[], None] = lambda: None) -> None:
        self._threads = [_DecodeThread(f"decode-{number}", prepare, on_idle) for number in range(count)]

    def start(self) -> None:
        for decoding in self._threads:
            decoding.thread.start()

    def strand(self, work: Work, *, urgency: Callable[[], Urgency] = lambda: LEAST) -> Strand:
        """A strand for `work`, on the thread with the fewest, and of these the one where fewest go before it or take turns with it.
        `urgency` is asked whenever it is woken: larger goes first.
        """
        rank = urgency()[0]

        def load(thread: _DecodeThread) -> tuple[int, int]:
            strands = list(thread.strands)  # a copy: other threads close theirs meanwhile
            return len(strands), sum(strand.rank >= rank for strand in strands)

        decoding = min(self._threads, key=load)
        strand = Strand(work, decoding, urgency)
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
