"""The parent process: it starts the workers, watches over them, and is the one writer of events and camera states. It never touches video.

The life-cycle contract. If the code differs, that is a bug; each clause has its test in tests/daemon/test_daemon.py.

Load
 1. A configuration that cannot be used raises ConfigError before anything is started.
Start-up
 2. Each worker is a fresh interpreter, given Start with the whole configuration and its share of the cameras. The parent imports neither
    torch nor av.
 3. Each camera has one event `started` and the state `connecting` before any other.
 4. systemd is told READY=1 once, when every worker has said Ready. Cameras are not waited for.
Main loop
 5. What a worker says of a camera becomes its current state, and goes to the sink, without credentials. All states are written again
    each 30 s, so that a Redis that lost its data has them back.
 6. A worker that dies is replaced after a wait, 0.5 s doubling to 30 s, from the start again once it was ready for 60 s. Until then its
    cameras are `down`, reason `worker_died`, with an event each. The new process gets the same cameras, except those that are done. The
    other workers do not notice.
 7. A worker that was ready and is silent for 10 s is killed; clause 6 follows.
 8. systemd's watchdog is fed at a third of its deadline, by a loop that runs, while no worker is silent like that.
 9. A worker that says a restart cannot help ends the daemon: exit code 69, with its sentence in the log.
10. When every camera is `ended` there is nothing left to do: exit code 0; 66 if some are `failed`.
11. An error of our own ends the daemon: exit code 70.
Shutdown
12. SIGTERM and SIGINT: STOPPING=1, Stop to all workers, `shutdown_timeout` for them to finish, then SIGKILL. No worker is replaced.
    Exit code 0, also where some had to be killed.
13. Every way out but the next two stops the workers so, then says `stopped` of each camera that is not done, then flushes the sink.
14. A second signal: SIGKILL to all workers at once, nothing is flushed, exit code 128 + its number.
15. When the parent is killed, each worker sees the end of its channel, and goes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog

from streamd import __version__, eventloop
from streamd import log as logging
from streamd.config import load, secrets
from streamd.config.redaction import reveal
from streamd.config.types import Config
from streamd.daemon.cameras import Cameras
from streamd.daemon.notify import Notifier
from streamd.daemon.placement import Placement, place, visible_gpus
from streamd.daemon.supervisor import Supervisor, Timing, WorkerRefused
from streamd.records import Phase, Record
from streamd.redact import add_secrets, redact
from streamd.sinks import build, spool_place
from streamd.sinks.base import Sink
from streamd.types import DropReason
from streamd.worker.protocol import Changed, Counts, Start

WORKER_ARGV = (sys.executable, "-m", "streamd.worker")
"""The number of the channel's file descriptor is appended."""

_WORKERS_SHARE = 0.9
"""Of `shutdown_timeout`, what the workers are told; the rest is for their exit."""
_LEAST_FLUSH_S = 1.0
_REPEAT_STATES_S = 30.0
_SPOOL_SHARE = 0.1
"""Of `spool.max_bytes`: for events, which are few."""

log = structlog.get_logger()


def run(path: Path | None, *, log_level: str, log_json: bool | None) -> int:
    """Load the configuration at `path` (None: on the search path), run until the end, return the exit code. Raises ConfigError."""
    config = load(path)
    add_secrets(secrets(config))
    logging.configure(level=log_level, json=log_json)
    return eventloop.run(_serve(config, log_level=log_level, log_json=logging.is_json(asked=log_json)))


async def _serve(config: Config, *, log_level: str, log_json: bool) -> int:
    def dropped(records: Sequence[Record]) -> None:
        log.warning("events were given up: the sinks are away and the queue is full", count=len(records))

    def lost(_camera: str | None, count: int, reason: DropReason) -> None:
        log.warning("records that waited on disk were given up", count=count, reason=reason)

    # What is left of cameras that are gone from the configuration, and events, are this process's to send.
    spool = spool_place(config, owns=lambda camera: camera not in config.cameras, share=_SPOOL_SHARE)
    sink = build(config, written=lambda _acks: None, dropped=dropped, lost=lost, found=lambda _camera, _count: None, spool=spool)
    return await Daemon(config, sink=sink, log_level=log_level, log_json=log_json).run()


class Daemon:
    """One run, from start-up to exit code. `run` is called once."""

    def __init__(
        self,
        config: Config,
        *,
        sink: Sink,
        log_level: str = "info",
        log_json: bool = True,
        worker_argv: Sequence[str] = WORKER_ARGV,
        timing: Timing = Timing(),  # noqa: B008 - frozen
    ) -> None:
        self._config = config
        self._sink = sink
        self._log_level = log_level
        self._log_json = log_json
        self._cameras = Cameras(config, put=sink.put)
        self._notifier = Notifier(os.environ)
        gpus = visible_gpus(os.environ)
        self._workers = [Supervisor(placement, listener=self, argv=worker_argv, timing=timing) for placement in place(config, gpus=gpus)]
        self._lives: list[asyncio.Task[None]] = []
        self._ready: set[str] = set()
        self._signals = 0

    async def run(self) -> int:
        """Start-up, main loop, shutdown. Returns the exit code."""
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        await self._sink.start()
        try:
            repeating = asyncio.create_task(self._repeat_states())
            try:
                self._start_up()
                code = await self._main_loop()
            finally:
                repeating.cancel()
                await self._shutdown()
        except Exception:
            log.exception("internal error")
            code = os.EX_SOFTWARE
        log.info("stopped", exit_code=code)
        return code

    def _start_up(self) -> None:
        log.info(
            "starting",
            version=__version__,
            cameras=len(self._config.cameras),
            workers=len(self._workers),
            device=self._config.engine.device,
            pid=os.getpid(),
        )
        self._cameras.started()
        self._notifier.status("loading models")
        for worker in self._workers:
            life = asyncio.create_task(worker.run())
            life.add_done_callback(self._life_over)
            self._lives.append(life)

    async def _main_loop(self) -> int:
        while True:
            over, _ = await asyncio.wait({self._over}, timeout=self._notifier.watchdog_interval_s)
            if over:
                return self._over.result()
            if not any(worker.hangs for worker in self._workers):
                self._notifier.watchdog()

    async def _repeat_states(self) -> None:
        while True:
            await asyncio.sleep(_REPEAT_STATES_S)
            self._cameras.repeat()

    async def _shutdown(self) -> None:
        now_s = asyncio.get_running_loop().time
        timeout_s = self._config.engine.shutdown_timeout
        deadline_s = now_s() + timeout_s
        self._notifier.stopping()
        log.info("stopping", timeout_s=timeout_s)
        for worker in self._workers:
            worker.stop(timeout_s=_WORKERS_SHARE * timeout_s)
        try:
            await self._let_workers_finish(timeout_s)
            self._cameras.stopped()
        finally:
            unwritten = await self._sink.close(timeout_s=max(_LEAST_FLUSH_S, deadline_s - now_s()))
            self._notifier.close()
        if unwritten:
            log.warning("records could not be written before the end", count=unwritten)

    async def _let_workers_finish(self, timeout_s: float) -> None:
        if not self._lives:
            return
        _, late = await asyncio.wait(self._lives, timeout=timeout_s)
        if late:
            log.warning("workers did not stop in time and are killed", count=len(late), timeout_s=timeout_s)
        for worker in self._workers:
            worker.kill()
        await asyncio.gather(*self._lives, return_exceptions=True)

    def _end(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    def _signalled(self, number: int) -> None:
        self._signals += 1
        name = signal.Signals(number).name
        if self._signals == 1:
            log.info("signal received", signal=name)
            self._end(os.EX_OK)
            return
        log.warning("second signal received, leaving at once", signal=name)
        for worker in self._workers:
            worker.kill()
        # Not by an exception: whatever waits (a flush, a name look-up in a thread) would be waited for.
        os._exit(128 + number)

    def _life_over(self, life: asyncio.Task[None]) -> None:
        error = None if life.cancelled() else life.exception()
        if error is None or self._over.done():
            return
        if isinstance(error, WorkerRefused):
            log.error("cannot run", reason=str(error))
            self._end(os.EX_UNAVAILABLE)
        else:
            log.critical("internal error", exc_info=error)
            self._end(os.EX_SOFTWARE)

    # What the supervisors tell: see supervisor.Listener.

    def start_message(self, placement: Placement) -> Start | None:
        cameras = self._cameras.unfinished(placement.cameras)
        if not cameras:
            return None
        config = reveal(self._config)
        return Start(
            worker=placement.worker,
            config=config,
            cameras=cameras,
            workers=len(self._workers),
            log_level=self._log_level,
            log_json=self._log_json,
        )

    def worker_ready(self, placement: Placement) -> None:
        if placement.worker not in self._ready:
            self._ready.add(placement.worker)
            if len(self._ready) == len(self._workers):
                self._notifier.ready()
                self._say_status()
                log.info("ready", workers=len(self._workers))

    def worker_changed(self, message: Changed) -> None:
        self._cameras.changed(message.state, message.event)
        self._say_status()
        if not self._cameras.unfinished(self._cameras.states):
            failed = self._cameras.count(Phase.FAILED)
            log.info("every camera is done", ended=self._cameras.count(Phase.ENDED), failed=failed)
            self._end(os.EX_NOINPUT if failed else os.EX_OK)

    def worker_counted(self, placement: Placement, message: Counts) -> None:
        pass  # the ledgers are for whoever measures; the supervisor has taken the heartbeat

    def worker_died(self, placement: Placement, *, detail: str, retry_in_s: float) -> None:
        cameras = self._cameras.unfinished(placement.cameras)
        detail = redact(f"worker {placement.worker}: {detail}")
        log.error("worker died", worker=placement.worker, detail=detail, cameras=len(cameras), retry_in_s=retry_in_s)
        self._cameras.worker_died(cameras, detail=detail, retry_in_s=retry_in_s)
        self._say_status()

    def _say_status(self) -> None:
        self._notifier.status(f"{self._cameras.count(Phase.UP)} of {len(self._cameras.states)} cameras up")
