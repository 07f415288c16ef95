"""One worker's life, over as many processes as it takes: spawn, Start, Ready, and when the process is gone the next one, after a wait.

It decides nothing about cameras: it asks which are left, and reports what it hears.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from streamd.daemon.placement import Placement
from streamd.daemon.progress import Progress
from streamd.errors import StreamdError
from streamd.worker.protocol import Changed, Channel, Counts, Failed, FromWorker, Ready, Released, Start, Stop, Update

log = structlog.get_logger()


class WorkerRefused(StreamdError):
    """A worker says that no restart could help: a model that cannot be loaded, a GPU that is required and missing."""


class _NotAMessage(StreamdError):
    """A worker sent bytes that the protocol does not know."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds."""

    first_wait: float = 0.5
    """Before the second process; doubles with each further one."""
    longest_wait: float = 30.0
    healthy_after: float = 60.0
    """A worker that was ready for this long starts again with the first wait."""
    silence: float = 10.0
    """A worker that was ready and then says nothing for this long hangs. It speaks each second."""
    stuck: float = 30.0
    """A worker that speaks, gets frames, and for this long brings none of them further, hangs too."""
    exit: float = 5.0
    """A process that closed its end of the channel is given this long to be gone."""


class Listener(Protocol):
    """Who hears of a worker."""

    def start_message(self, placement: Placement) -> Start | None:
        """What the next process is told; None when none of its cameras is left."""
        ...

    def worker_ready(self, placement: Placement) -> None: ...

    def worker_changed(self, message: Changed) -> None: ...

    def worker_released(self, placement: Placement, camera: str) -> None: ...

    def worker_counted(self, placement: Placement, message: Counts) -> None: ...

    def worker_died(self, placement: Placement, *, detail: str, retry_in_s: float) -> None: ...


class Supervisor:
    """Holds one worker. `run` is its life; the other methods may be called at any time from the same loop."""

    def __init__(self, placement: Placement, *, listener: Listener, argv: Sequence[str], timing: Timing) -> None:
        self.placement = placement
        """Its share of the cameras; the daemon changes it."""
        self._listener = listener
        self._argv = argv
        self._timing = timing
        self._log = log.bind(worker=placement.worker)
        self._process: Process | None = None
        self._channel: Channel | None = None
        self._stop: Stop | None = None
        self._stop_asked = asyncio.Event()
        self._killed = False
        self._ready_at_s: float | None = None
        self._silent_s = 0.0
        self._stuck: str | None = None

    async def run(self) -> None:
        """Until `stop`, or until none of its cameras is left when its process ends. Raises WorkerRefused."""
        waits = self._waits()
        while (start := self._listener.start_message(self.placement)) is not None and not self._stop_asked.is_set():
            detail = await self._one_process(start)
            if self._stop_asked.is_set():
                self._log.debug("worker stopped", detail=detail)
                return
            if self._ready_for_s() >= self._timing.healthy_after:
                waits = self._waits()
            wait_s = next(waits)
            self._listener.worker_died(self.placement, detail=detail, retry_in_s=wait_s)
            try:
                await asyncio.wait_for(self._stop_asked.wait(), wait_s)
            except TimeoutError:
                continue

    @property
    def has_process(self) -> bool:
        """Whether there is one that was given Start, and will hear of updates."""
        return self._channel is not None

    def tell(self, message: Update) -> None:
        """To the process that is there; a later one gets the same with Start."""
        if self._channel is not None:
            self._channel.send(message)

    def stop(self, *, timeout_s: float) -> None:
        """Ask the process to finish within `timeout_s` seconds; there will be no other one."""
        self._stop = Stop(timeout_s)
        self._stop_asked.set()
        if self._channel is not None:
            self._channel.send(self._stop)

    def kill(self) -> None:
        """SIGKILL, now, for the process that is there or is being made."""
        self._killed = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    @property
    def hangs(self) -> bool:
        """Whether a process that was ready is there, and silent or without progress for too long."""
        return self._stuck is not None or self._silent_s >= self._timing.silence

    def _waits(self) -> Iterator[float]:
        wait_s = self._timing.first_wait
        while True:
            yield wait_s
            wait_s = min(2 * wait_s, self._timing.longest_wait)

    def _ready_for_s(self) -> float:
        return 0.0 if self._ready_at_s is None else asyncio.get_running_loop().time() - self._ready_at_s

    async def _one_process(self, start: Start) -> str:
        """From spawn to exit; returns a sentence on why it ended. Whatever happens, the process is gone afterwards."""
        self._ready_at_s, self._silent_s, self._stuck = None, 0.0, None
        self._progress = Progress(limit_s=self._timing.stuck)
        try:
            process, channel = await self._spawn()
        except OSError as error:
            return f"cannot be started: {error}"
        self._process, self._channel = process, channel
        self._log.debug("worker spawned", pid=process.pid)
        channel.send(start)
        if self._stop is not None:
            channel.send(self._stop)
        if self._killed:
            self.kill()
        try:
            said = await self._until_gone(process, channel)
            return said or _how_it_ended(process)
        finally:
            self._channel = None
            if process.returncode is None:
                process.kill()
            await process.wait()
            self._process, self._silent_s, self._stuck = None, 0.0, None
            await channel.close()

    async def _spawn(self) -> tuple[Process, Channel]:
        # A fresh interpreter, never a fork: CUDA does not survive one. It inherits no socket but its own (close_fds is the default), so
        # that each worker sees the end of file when we die. A session of its own: Ctrl-C on the terminal is for us, we tell the workers.
        ours, theirs = socket.socketpair()
        environ = dict(os.environ)
        if self.placement.gpu is not None:
            environ["CUDA_VISIBLE_DEVICES"] = self.placement.gpu
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._argv, str(theirs.fileno()), pass_fds=(theirs.fileno(),), stdin=DEVNULL, env=environ, start_new_session=True
                )
            except BaseException:
                ours.close()
                raise
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return process, Channel(reader, writer, receives=FromWorker)

    async def _until_gone(self, process: Process, channel: Channel) -> str | None:
        """Returns what the process said of its own end, or what was wrong with it, if anything."""
        listening = asyncio.ensure_future(self._listen(channel))
        exited = asyncio.ensure_future(process.wait())
        watching = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait({listening, exited, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                return watching.result()
            if listening.done():
                listening.result()  # what it raises ends the process at once
            # A process that closed its end is leaving; one that left has closed it, and its last words may still be unread.
            await asyncio.wait({listening, exited}, timeout=self._timing.exit)
            said = listening.result() if listening.done() else None
            return said or (None if exited.done() else "closed its channel and did not exit")
        except _NotAMessage as error:
            return str(error)
        finally:
            for task in (listening, exited, watching):
                task.cancel()
            await asyncio.gather(listening, exited, watching, return_exceptions=True)

    async def _listen(self, channel: Channel) -> str | None:
        said: str | None = None
        while True:
            try:
                message = await channel.receive()
            except ValueError as error:
                raise _NotAMessage(f"sent what is no message: {error}") from error
            if message is None:
                return said
            self._silent_s = 0.0
            match message:
                case Ready(device):
                    self._ready_at_s = asyncio.get_running_loop().time()
                    self._log.info("worker ready", device=device)
                    self._listener.worker_ready(self.placement)
                case Changed():
                    self._listener.worker_changed(message)
                case Released(camera):
                    self._listener.worker_released(self.placement, camera)
                case Counts():
                    self._stuck = self._stuck or self._progress.counted(message, asyncio.get_running_loop().time())
                    self._listener.worker_counted(self.placement, message)
                case Failed(said, retry):
                    if not retry:
                        raise WorkerRefused(said)

    async def _watch(self) -> str:
        """Returns when the process hangs. It counts our own ticks: a daemon that was itself stopped for a while blames nobody."""
        tick_s = self._timing.silence / 10
        while not self.hangs:
            await asyncio.sleep(tick_s)
            if self._ready_at_s is not None:
                self._silent_s += tick_s
        return self._stuck or f"silent for {self._timing.silence:g} s"


def _how_it_ended(process: Process) -> str:
    code = process.returncode
    if code is None:
        return "is gone"
    return f"killed by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
