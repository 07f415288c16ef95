"""One connection of a camera, from open to end. It never retries. Deadlines are kept here, also when a native call does not return."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from typing import Any

from streamd.camera import feed
from streamd.camera.feed import Machine, Up
from streamd.camera.ledger import CameraLedger
from streamd.config.types import CameraConfig
from streamd.errors import NoFrames, SourceTimeout, StreamdError

_NO_FRAME_TIMEOUT_S = 60.0
"""Packets come, but no frame: longer than any key frame interval of a camera that works."""
_POLL_S = 0.25
"""How often deadlines are looked at."""
_STOP_GRACE_S = 1.0
"""How long a stopping session waits for its reader before it turns away."""


class Session:
    """Used once: `run` returns at the end of a file, and raises StreamdError when the connection failed or broke off."""

    def __init__(
        self,
        camera: str,
        config: CameraConfig,
        *,
        model: str,
        machine: Machine,
        ledger: CameraLedger,
        on_up: Callable[[Up], None],
    ) -> None:
        self.id = secrets.token_hex(4)
        self.up_at_s: float | None = None
        self._config = config
        self._on_up = on_up
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._started_s = time.monotonic()
        self._opened_s: float | None = None
        self._stopped_s: float | None = None
        self._packets_ended = False
        self._is_over = False
        self._error: StreamdError | None = None
        self._feed = feed.of_order(feed.Order(camera, self.id, config, model, machine, ledger, self._post))
        self._reader = self._feed.reader

    def _post(self, what: str, value: Any) -> None:
        """Called from the feed's threads."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._news.put_nowait, (what, value))

    async def run(self, stop: asyncio.Event) -> None:
        """Until the end, an error, or `stop`; after `stop` what was received is still decoded."""
        stopping = asyncio.create_task(stop.wait())
        self._reader.start()
        try:
            error = await self._follow(stopping)
        finally:
            stopping.cancel()
            self._feed.abandon()
        if error is not None:
            raise error
        if self.up_at_s is None and not stop.is_set():
            raise NoFrames(f"{self._config.url} ended without one frame that could be decoded")

    async def _follow(self, stopping: asyncio.Task[bool]) -> StreamdError | None:
        """React to what the threads post; returns the error that ended the session, or None."""
        while not self._is_over:
            now_s = time.monotonic()
            if stopping.done():
                self._wind_up(now_s)
            elif not self._packets_ended and (late := self._overdue(now_s)) is not None:
                return late
            news = await self._next_news(stopping)
            if news is not None:
                self._react(*news)
        return self._error

    def _wind_up(self, now_s: float) -> None:
        """The camera is being stopped: wait a little for the reader, then go on without it."""
        if self._stopped_s is None:
            self._stopped_s = now_s
            self._reader.stop()
        elif not self._packets_ended and now_s - self._stopped_s >= _STOP_GRACE_S:
            self._end_of_packets(None)

    def _react(self, what: str, value: Any) -> None:
        match what:
            case "open":
                self._opened_s = time.monotonic()
            case "up":
                self.up_at_s = time.monotonic()
                self._on_up(value)
            case "read_end":
                self._end_of_packets(value)
            case "done":
                self._error, self._is_over = value or self._error, True

    def _end_of_packets(self, error: StreamdError | None) -> None:
        """What was received is still decoded; `done` follows. Without a decoder there is nothing to wait for."""
        self._packets_ended = True
        self._error = self._error or error
        if self._feed.stage is None:
            self._is_over = True
        else:
            self._feed.stage.close()

    async def _next_news(self, stopping: asyncio.Task[bool]) -> tuple[str, Any] | None:
        """What is posted next; None after a while, or when the camera is stopped meanwhile."""
        getting = asyncio.ensure_future(self._news.get())
        waiting: set[asyncio.Future[Any]] = {getting} if stopping.done() else {getting, stopping}
        await asyncio.wait(waiting, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            getting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await getting
        return None

    def _overdue(self, now_s: float) -> StreamdError | None:
        """The deadline that has passed at `now_s`."""
        config, where = self._config, self._config.url
        if self._opened_s is None:
            limit_s = config.connect_timeout + config.first_packet_timeout
            late = now_s - self._started_s > limit_s
            return SourceTimeout(f"{where} could not be opened within {limit_s:g} s") if late else None
        if config.is_file:
            return None
        last_ns = self._reader.last_packet_ns
        if last_ns is None:
            late = now_s - self._opened_s > config.first_packet_timeout
            return SourceTimeout(f"{where} sent no packet within {config.first_packet_timeout:g} s") if late else None
        if now_s - last_ns / 1e9 > config.silence_timeout:
            return SourceTimeout(f"{where} sent nothing for {config.silence_timeout:g} s")
        if self.up_at_s is None and not self._feed.is_starved and now_s - self._opened_s > _NO_FRAME_TIMEOUT_S:
            return NoFrames(f"{where} sent packets for {_NO_FRAME_TIMEOUT_S:g} s, but no frame could be decoded")
        return None
