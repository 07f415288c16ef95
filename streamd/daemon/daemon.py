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
Reload
12. SIGHUP or a changed file of the configuration loads it again, one reload at a time. Cameras that are new start at the worker with the
    least to do that has their model and GPU, or at a new worker; changed ones begin again when what they received is through; removed
    ones stop and their state is deleted. No other camera is touched. An event `reloaded` counts them.
13. A configuration that cannot be used changes nothing: an error in the log, an event `reload_failed`.
14. `redis`, `jsonl`, `engine` and models that are there stay as they are until a restart; the log and the event say so.
15. A worker that a reload added and that refuses leaves its cameras `failed`; the daemon goes on.
16. systemd is told RELOADING=1 with the monotonic time, then READY=1. While models load it is asked for more time.
17. A worker that speaks but brings no frame further for 30 s although it gets some is killed; clause 6 follows.
Shutdown
18. SIGTERM and SIGINT: STOPPING=1, Stop to all workers, `shutdown_timeout` for them to finish, then SIGKILL. No worker is replaced.
    Exit code 0, also where some had to be killed.
19. Every way out but the next two stops the workers so, then says `stopped` of each camera that is not done, then flushes the sink.
20. A second signal: SIGKILL to all workers at once, nothing is flushed, exit code 128 + its number.
21. When the parent is killed, each worker sees the end of its channel, and goes.
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
from streamd.config import find, load, secrets
from streamd.config.redaction import reveal
from streamd.config.types import Config
from streamd.daemon.cameras import Cameras
from streamd.daemon.fleet import Fleet
from streamd.daemon.notify import Notifier
from streamd.daemon.placement import Placement, visible_gpus
from streamd.daemon.reloading import Reloads
from streamd.daemon.sink import parent_sink
from streamd.daemon.status import Status
from streamd.daemon.supervisor import Supervisor, Timing, WorkerRefused
from streamd.records import Phase
from streamd.redact import add_secrets, redact
from streamd.sinks.base import Sink
from streamd.worker.protocol import Changed, Counts, Start

WORKER_ARGV = (sys.executable, "-m", "streamd.worker")
"""The number of the channel's file descriptor is appended."""

_WORKERS_SHARE = 0.9
"""Of `shutdown_timeout`, what the workers are told; the rest is for their exit."""
_LEAST_FLUSH_S = 1.0
_REPEAT_STATES_S = 30.0

log = structlog.get_logger()


def run(path: Path | None, *, log_level: str, log_json: bool | None) -> int:
    """Load the configuration at `path` (None: on the search path), run until the end, return the exit code. Raises ConfigError."""
    path = find(path)
    config = load(path)
    add_secrets(secrets(config))
    logging.configure(level=log_level, json=log_json)

    async def serve() -> int:
        as_json = logging.is_json(asked=log_json)
        return await Daemon(config, path, sink=parent_sink(config), log_level=log_level, log_json=as_json).run()

    return eventloop.run(serve())


class Daemon:
    """One run, from start-up to exit code. `run` is called once."""

    def __init__(
        self,
        config: Config,
        path: Path,
        *,
        sink: Sink,
        log_level: str = "info",
        log_json: bool = True,
        worker_argv: Sequence[str] = WORKER_ARGV,
        timing: Timing = Timing(),  # noqa: B008 - frozen
    ) -> None:
        """`path`: streamd.yaml, which `config` was loaded from."""
        self._sink = sink
        self._log_level = log_level
        self._log_json = log_json
        self._cameras = Cameras(config, put=sink.put)
        self._notifier = Notifier(os.environ)

        def new(placement: Placement) -> Supervisor:
            return Supervisor(placement, listener=self, argv=worker_argv, timing=timing)

        self._fleet = Fleet(config, self._cameras, gpus=visible_gpus(os.environ), new=new)
        self._first = frozenset(self._fleet.workers)
        """Those that the start waits for."""
        self.reloads = Reloads(path, self._fleet, put=sink.put, notifier=self._notifier)
        self._status = Status(self._notifier, self._cameras)
        self._lives: dict[asyncio.Task[None], Supervisor] = {}
        self._ready: set[str] = set()
        self._signals = 0

    async def run(self) -> int:
        """Start-up, main loop, shutdown. Returns the exit code."""
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reloads.ask)
        await self._sink.start()
        try:
            besides = [asyncio.create_task(run) for run in (self._repeat_states(), self._status.run(), self.reloads.run())]
            for task in besides:
                task.add_done_callback(self._besides_over)
            try:
                self._start_up()
                code = await self._main_loop()
            finally:
                for task in besides:
                    task.cancel()
                await asyncio.gather(*besides, return_exceptions=True)
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
            cameras=len(self._fleet.config.cameras),
            workers=len(self._fleet.workers),
            device=self._fleet.config.engine.device,
            pid=os.getpid(),
        )
        self._cameras.started()
        self._notifier.status("loading models")
        self._fleet.launch_with(self._launch)

    def _launch(self, worker: Supervisor) -> None:
        life = asyncio.create_task(worker.run())
        self._lives[life] = worker
        life.add_done_callback(self._life_over)

    async def _main_loop(self) -> int:
        while True:
            over, _ = await asyncio.wait({self._over}, timeout=self._notifier.watchdog_interval_s)
            if over:
                return self._over.result()
            if not any(worker.hangs for worker in self._fleet.workers):
                self._notifier.watchdog()

    async def _repeat_states(self) -> None:
        while True:
            await asyncio.sleep(_REPEAT_STATES_S)
            self._cameras.repeat()

    def _besides_over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("internal error", exc_info=error)
            self._end(os.EX_SOFTWARE)

    async def _shutdown(self) -> None:
        now_s = asyncio.get_running_loop().time
        timeout_s = self._fleet.config.engine.shutdown_timeout
        deadline_s = now_s() + timeout_s
        self._notifier.stopping()
        log.info("stopping", timeout_s=timeout_s)
        for worker in self._fleet.workers:
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
        for worker in self._fleet.workers:
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
        for worker in self._fleet.workers:
            worker.kill()
        # Not by an exception: whatever waits (a flush, a name look-up in a thread) would be waited for.
        os._exit(128 + number)

    def _life_over(self, life: asyncio.Task[None]) -> None:
        worker = self._lives.pop(life)
        self._status.forget(worker.placement.worker)
        error = None if life.cancelled() else life.exception()
        if not self._over.done() and (error is None or (isinstance(error, WorkerRefused) and worker not in self._first)):
            self._fleet.over(worker)
            if error is not None:
                log.error("cameras cannot run", worker=worker.placement.worker, reason=redact(str(error)))
                self._cameras.failed(worker.placement.cameras, detail=str(error))
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
        self._fleet.started(placement, cameras)
        config = reveal(self._fleet.config)
        return Start(
            worker=placement.worker,
            config=config,
            cameras=cameras,
            workers=len(self._fleet.workers),
            log_level=self._log_level,
            log_json=self._log_json,
        )

    def worker_ready(self, placement: Placement) -> None:
        if placement.worker not in self._ready:
            self._ready.add(placement.worker)
            if not self._notifier.is_ready and self._ready >= {worker.placement.worker for worker in self._first}:
                self._notifier.ready()
                self._status.say()
                log.info("ready", workers=len(self._ready))

    def worker_changed(self, message: Changed) -> None:
        self._cameras.changed(message.state, message.event)
        self._status.say()
        if not self._cameras.unfinished(self._cameras.states):
            failed = self._cameras.count(Phase.FAILED)
            log.info("every camera is done", ended=self._cameras.count(Phase.ENDED), failed=failed)
            self._end(os.EX_NOINPUT if failed else os.EX_OK)

    def worker_counted(self, placement: Placement, message: Counts) -> None:
        self._status.counted(placement.worker, message)

    def worker_released(self, placement: Placement, camera: str) -> None:
        self._fleet.let_go(placement, camera)
        self._status.say()

    def worker_died(self, placement: Placement, *, detail: str, retry_in_s: float) -> None:
        cameras = self._cameras.unfinished(placement.cameras)
        detail = redact(f"worker {placement.worker}: {detail}")
        log.error("worker died", worker=placement.worker, detail=detail, cameras=len(cameras), retry_in_s=retry_in_s)
        self._cameras.worker_died(cameras, detail=detail, retry_in_s=retry_in_s)
        self._fleet.worker_died(placement.worker)
        self._status.forget(placement.worker)
        self._status.say()
