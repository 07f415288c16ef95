"""One run of the demo, from the choice of device to the exit code.

Life cycle: decide; clips and Redis, at the same time; the daemon; results, until `seconds` after every camera had its first one; summary;
then everything is stopped in reverse order, and the folder is removed. SIGINT, SIGTERM and SIGHUP go to the summary from anywhere, and
mean exit code 0; a second one kills what still runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from streamd.demo import plan as planning
from streamd.demo import redis_server, screens, words
from streamd.demo.child import Child
from streamd.demo.clips import H264, HEVC, make_clip
from streamd.demo.photographs import Photograph, path_of, require_packages
from streamd.demo.plan import PREFIX, Plan
from streamd.demo.redis_server import RedisAddress
from streamd.demo.screens import Screen, Summary
from streamd.demo.tally import Tally, all_true
from streamd.errors import StreamdError

FIRST_RESULTS_S = 120.0
"""How long every camera has for its first result. On two busy cores it takes a few seconds."""

_STOP_S = 6.0
"""For each child; longer than the daemon's own `shutdown_timeout`."""
_CANCEL_S = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoFailed(StreamdError):
    """The daemon ended, or gave no results."""


def run(*, seconds: float, device: str, cameras: int, as_json: bool) -> int:
    """Run the demo, and return the exit code: 0 where every camera's labels are true, or it was interrupted; else 70.

    Raises:
        DemoUnavailable: something is not installed, or there is no Redis.
        DemoFailed: the daemon ended, or gave no results.
    """
    require_packages()
    plan = planning.make(device=device, cameras=cameras, environ=os.environ)
    tallies = {camera.name: Tally(camera) for camera in plan.cameras}
    with screens.choose(list(tallies.values()), as_json=as_json) as screen, tempfile.TemporaryDirectory(prefix="streamd-demo-") as folder:
        return asyncio.run(_Demo(plan, screen, tallies, Path(folder)).run(seconds))


class _Demo:
    def __init__(self, plan: Plan, screen: Screen, tallies: dict[str, Tally], folder: Path) -> None:
        self._plan = plan
        self._screen = screen
        self._tallies = tallies
        self._folder = folder
        self._started_s = time.monotonic()
        self._started_ms = time.time_ns() // 1_000_000
        self._interrupted = asyncio.Event()
        self._all_seen = asyncio.Event()
        self._stop_encoding = threading.Event()
        self._children: list[Child] = []

    async def run(self, seconds: float) -> int:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled)
        work = asyncio.create_task(self._work(seconds))
        interruption = asyncio.create_task(self._interrupted.wait())
        try:
            await asyncio.wait({work, interruption}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            summary = self._summary()
            if self._interrupted.is_set():
                self._screen.say("Stopping.")
            if any(camera.results for camera in summary.cameras):
                self._screen.summary(summary)
                self._screen.say(words.epilogue(summary, command=words.command(sys.argv[0]), redis=self._plan.redis))
        finally:
            interruption.cancel()
            await self._stop(work)
        return 0 if self._interrupted.is_set() or summary.ok else os.EX_SOFTWARE

    def _signalled(self) -> None:
        if self._interrupted.is_set():
            for child in self._children:
                child.kill()
        self._interrupted.set()
        self._stop_encoding.set()

    async def _work(self, seconds: float) -> None:
        self._screen.say(words.prologue(self._plan))
        encoding = asyncio.create_task(self._clips())
        try:
            redis = await self._redis()
            clips = await encoding
        finally:
            encoding.cancel()
        config = self._folder / "config"
        self._plan.write(config, clips)
        self._screen.say(words.while_it_runs(self._plan, redis))
        program = [sys.executable, "-m", "streamd", "run", "--config", str(config), "--log-format", "console"]
        daemon = await self._child(program, log=self._folder / "streamd.log", environ=self._plan.environ(redis, temporary=self._folder))
        await self._follow(redis, daemon, seconds)

    async def _redis(self) -> RedisAddress:
        if self._plan.redis is not None:
            await redis_server.check(self._plan.redis, prefix=PREFIX)
            return self._plan.redis
        assert self._plan.redis_binary is not None
        server, address = await redis_server.start(self._plan.redis_binary, self._folder)
        self._children.append(server)
        return address

    async def _child(self, program: list[str], *, log: Path, environ: dict[str, str]) -> Child:
        child = await Child.start(program, log=log, environ=environ)
        self._children.append(child)
        return child

    async def _clips(self) -> dict[str, Path]:
        """The clips, by photograph: one in HEVC, the others in H.264."""
        photographs = list(dict.fromkeys(camera.photograph for camera in self._plan.cameras))
        clips = {photograph.name: self._folder / f"{photograph.name}.mp4" for photograph in photographs}

        async def make(photograph: Photograph) -> None:
            encoding = HEVC if photograph.name == "espresso" else H264
            clip = clips[photograph.name]
            await asyncio.to_thread(make_clip, path_of(photograph), clip, encoding=encoding, stop=self._stop_encoding)

        await asyncio.gather(*map(make, photographs))
        return clips

    async def _follow(self, redis: RedisAddress, daemon: Child, seconds: float) -> None:
        """Read results until `seconds` after every camera had its first one."""
        died = asyncio.create_task(daemon.wait())
        reading = asyncio.create_task(self._read(redis))
        all_seen = asyncio.create_task(self._all_seen.wait())
        tasks = {died, reading, all_seen}
        try:
            await asyncio.wait(tasks, timeout=FIRST_RESULTS_S, return_when=asyncio.FIRST_COMPLETED)
            if all_seen.done():
                await asyncio.wait({died, reading}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                raise DemoFailed(f"the daemon ended with exit code {died.result()}:\n{daemon.last_lines(15)}")
            if reading.done():
                reading.result()
            if not all_seen.done():
                silent = [name for name, tally in self._tallies.items() if not tally.results]
                raise DemoFailed(f"no result of {', '.join(silent)} within {FIRST_RESULTS_S:g} s:\n{daemon.last_lines(15)}")
        finally:
            await _cancelled(tasks)

    async def _read(self, redis: RedisAddress) -> None:
        results = redis.client(prefix=PREFIX).results(*self._tallies, from_="0")
        async with contextlib.aclosing(results) as entries:
            async for entry in entries:
                if entry.record.captured_ms < self._started_ms:
                    continue  # of an earlier demo, in a Redis that is not ours
                tally = self._tallies[entry.record.camera]
                tally.add(entry.record, after_s=time.monotonic() - self._started_s)
                self._screen.result(tally, entry.record)
                if all(each.results for each in self._tallies.values()):
                    self._all_seen.set()

    async def _stop(self, work: asyncio.Task[None]) -> None:
        self._stop_encoding.set()
        await _cancelled({work})
        for child in reversed(self._children):
            await child.stop(timeout_s=_STOP_S)

    def _summary(self) -> Summary:
        cameras = [tally.summary() for tally in self._tallies.values()]
        return Summary(ok=all_true(cameras), seconds=round(time.monotonic() - self._started_s, 2), cameras=cameras)


async def _cancelled(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel them, and wait, not for long: a connection to a Redis that hangs closes only when that one is gone."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_CANCEL_S)
