"""One connection of a camera, from open to end. It never retries. Deadlines are kept here, also when a native call does not return."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from streamd import decoders, sources
from streamd.camera.decoding import Decoding, DecodingConfig
from streamd.camera.inbox import Inbox
from streamd.camera.ledger import CameraLedger
from streamd.camera.pool import DecodePool
from streamd.camera.reader import Reader
from streamd.config.types import CameraConfig
from streamd.engine import Engine
from streamd.errors import DecoderUnavailable, NoFrames, SourceTimeout, StreamdError
from streamd.types import DropReason, Frame, Packet, StreamInfo

_NO_FRAME_TIMEOUT_S = 60.0
"""Packets come, but no frame: longer than any key frame interval of a camera that works."""
_POLL_S = 0.25
"""How often deadlines are looked at."""
_STOP_GRACE_S = 1.0
"""How long a stopping session waits for its reader before it turns away."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What all cameras of a worker share."""

    engine: Engine
    pool: DecodePool
    device: torch.device
    keyframes: decoders.KeyframeDecoders = field(default_factory=decoders.KeyframeDecoders)


@dataclass(frozen=True, slots=True)
class Up:
    """The first frame of a session."""

    info: StreamInfo
    width: int
    height: int
    decoder: str
    decoder_reason: str | None


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
        self._camera = camera
        self._config = config
        self._machine = machine
        self._ledger = ledger
        self._on_up = on_up
        self._model = model
        self._max_age_s = config.max_age if config.is_live else None
        self._keyframes_only = config.decode == "keyframes"
        self._had_keyframe = False
        self._next_token = 0
        self._inbox = Inbox(max_age_s=self._max_age_s)
        self._decoding: Decoding | None = None
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._ignored = False
        self._started_s = time.monotonic()
        self._opened_s: float | None = None
        self._stopped_s: float | None = None
        self._packets_ended = False
        self._is_over = False
        self._error: StreamdError | None = None
        self._reader = Reader(
            sources.of_camera(config),
            name=camera,
            realtime=config.realtime,
            on_open=self._opened,
            on_packet=self._packet,
            on_end=lambda error: self._post("read_end", error),
        )

    # --- on the reader's and decode threads

    def _post(self, what: str, value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._news.put_nowait, (what, value))

    def _opened(self, info: StreamInfo) -> None:
        config = self._config
        if config.rotate != "auto":
            info = replace(info, rotation_deg=config.rotate)
        machine = self._machine
        try:
            self._decoding = Decoding(
                DecodingConfig(
                    camera=self._camera,
                    session=self.id,
                    policy=config.decoder,
                    low_latency=config.latency == "low" or (config.latency == "auto" and config.is_live) or config.decode == "keyframes",
                    keyframes_only=config.decode == "keyframes",
                    fps=config.fps,
                ),
                info,
                inbox=self._inbox,
                intake=machine.engine.intake(self._camera, self._model, max_age_s=self._max_age_s, rank=config.rank),
                ledger=self._ledger,
                device=machine.device,
                pool=machine.pool,
                keyframes=machine.keyframes,
                on_up=lambda frame, choice: self._post("up", _up(info, frame, choice)),
                on_done=lambda error: self._post("done", error),
            )
        except DecoderUnavailable as error:
            self._reader.stop()
            self._post("unavailable", error)
            return
        self._post("open", None)

    def _packet(self, packet: Packet) -> None:
        if self._ignored or self._decoding is None:
            return
        left_out = packet.token - self._next_token if self._keyframes_only else 0  # by a source that knows what is not wanted
        self._next_token = packet.token + 1
        self._ledger.received(1 + left_out)
        self._ledger.dropped(DropReason.SAMPLED_OUT, left_out)
        if self._keyframes_only:
            if self._had_keyframe and not packet.is_keyframe:  # most packets of thousands of cameras: not worth waking a thread
                self._ledger.dropped(DropReason.SAMPLED_OUT)
                return
            self._had_keyframe = self._had_keyframe or packet.is_keyframe
        self._ledger.dropped(DropReason.OVERLOAD if self._config.is_live else DropReason.SHUTDOWN, self._inbox.put(packet))
        if not self._inbox.is_skipping:  # else it was given up on arrival
            self._decoding.strand.wake()

    # --- on the loop

    async def run(self, stop: asyncio.Event) -> None:
        """Until the end, an error, or `stop`; after `stop` what was received is still decoded."""
        stopping = asyncio.create_task(stop.wait())
        self._reader.start()
        try:
            error = await self._follow(stopping)
        finally:
            stopping.cancel()
            self._ignored = True
            self._reader.stop()
            if self._decoding is not None:
                self._decoding.abandon()
            self._ledger.dropped(DropReason.SHUTDOWN, self._inbox.clear())
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
            case "unavailable":
                self._error, self._is_over = value, True
            case "read_end":
                self._end_of_packets(value)
            case "done":
                self._error, self._is_over = value or self._error, True

    def _end_of_packets(self, error: StreamdError | None) -> None:
        """What was received is still decoded; `done` follows. Without a decoder there is nothing to wait for."""
        self._packets_ended = True
        self._error = self._error or error
        self._inbox.close()
        if self._decoding is None:
            self._is_over = True
        else:
            self._decoding.strand.hasten()

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
        if self.up_at_s is None and not self._inbox.is_starved and now_s - self._opened_s > _NO_FRAME_TIMEOUT_S:
            return NoFrames(f"{where} sent packets for {_NO_FRAME_TIMEOUT_S:g} s, but no frame could be decoded")
        return None


def _up(info: StreamInfo, frame: Frame, choice: decoders.Choice) -> Up:
    return Up(info, frame.width, frame.height, choice.name, choice.reason)
