"""How a session gets its samples: from packets that are decoded here, or from runs of frames that DALI makes of a whole file.

A feed is a Reader, on its own thread, and a Stage, on a decode thread, that makes samples of what is read. `post` hears from both:
`open`; `up`, with an Up; `read_end` and then `done`, each with the error or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from streamd import decoders, sources
from streamd.camera.backlog import Backlog, BacklogConfig, BacklogSource
from streamd.camera.decoding import Decoding, DecodingConfig
from streamd.camera.inbox import Inbox
from streamd.camera.ledger import CameraLedger
from streamd.camera.pool import DecodePool
from streamd.camera.reader import Reader
from streamd.config.types import CameraConfig
from streamd.decoders.dali import Run
from streamd.engine import Engine, Intake
from streamd.errors import StreamdError
from streamd.sources.file import FileSource
from streamd.types import DropReason, Frame, Packet, StreamInfo


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


@dataclass(frozen=True, slots=True)
class Order:
    """Whose samples are wanted, and who hears of them."""

    camera: str
    session: str
    config: CameraConfig
    model: str
    machine: Machine
    ledger: CameraLedger
    post: Callable[[str, Any], None]

    @property
    def max_age_s(self) -> float | None:
        return self.config.max_age if self.config.is_live else None

    def intake(self) -> Intake:
        return self.machine.engine.intake(self.camera, self.model, max_age_s=self.max_age_s, rank=self.config.rank)

    def read_end(self, error: StreamdError | None) -> None:
        self.post("read_end", error)

    def done(self, error: StreamdError | None) -> None:
        self.post("done", error)


class Stage(Protocol):
    """Work of a Strand that makes samples. It tells of the first frame and of the end."""

    def close(self) -> None:
        """Nothing follows: work off what was received, then end."""
        ...

    def abandon(self) -> None:
        """End now: what was received is given up."""
        ...


class Feed(Protocol):
    """Begins with `reader.start()`; `reader.stop()` asks for no more."""

    @property
    def reader(self) -> Reader[Any]: ...

    @property
    def is_starved(self) -> bool:
        """See Inbox.is_starved."""
        ...

    @property
    def stage(self) -> Stage | None:
        """None until the source is open."""
        ...

    def abandon(self) -> None:
        """Turn away: whatever the threads still do is nobody's, and what was received is given up."""
        ...


def of_order(order: Order) -> Feed:
    """The feed for a camera's configuration."""
    return RunFeed(order) if order.config.decoder == "dali" else PacketFeed(order)


class PacketFeed:
    """Source, Inbox, Decoding."""

    def __init__(self, order: Order) -> None:
        config = order.config
        self._order = order
        self._keyframes_only = config.decode == "keyframes"
        self._had_keyframe = False
        self._next_token = 0
        self._inbox = Inbox(max_age_s=order.max_age_s)
        self._ignored = False
        self.stage: Decoding | None = None
        self.reader: Reader[Packet] = Reader(
            sources.of_camera(config),
            name=order.camera,
            realtime=config.realtime,
            on_open=self._opened,
            on_packet=self._packet,
            on_end=order.read_end,
        )

    @property
    def is_starved(self) -> bool:
        """See Feed."""
        return self._inbox.is_starved

    def abandon(self) -> None:
        """See Feed."""
        self._ignored = True
        self.reader.stop()
        if self.stage is not None:
            self.stage.abandon()
        self._order.ledger.dropped(DropReason.SHUTDOWN, self._inbox.clear())

    def _opened(self, info: StreamInfo) -> None:
        order, config, machine = self._order, self._order.config, self._order.machine
        if config.rotate != "auto":
            info = replace(info, rotation_deg=config.rotate)
        self.stage = Decoding(
            DecodingConfig(
                camera=order.camera,
                session=order.session,
                policy=config.decoder,
                low_latency=config.latency == "low" or (config.latency == "auto" and config.is_live) or self._keyframes_only,
                keyframes_only=self._keyframes_only,
                fps=config.fps,
            ),
            info,
            inbox=self._inbox,
            intake=order.intake(),
            ledger=order.ledger,
            device=machine.device,
            pool=machine.pool,
            keyframes=machine.keyframes,
            on_up=lambda frame, choice: order.post("up", _up(info, frame, choice)),
            on_done=order.done,
        )
        order.post("open", None)

    def _packet(self, packet: Packet) -> None:
        if self._ignored or self.stage is None:
            return
        ledger = self._order.ledger
        left_out = packet.token - self._next_token if self._keyframes_only else 0  # by a source that knows what is not wanted
        self._next_token = packet.token + 1
        ledger.received(1 + left_out)
        ledger.dropped(DropReason.SAMPLED_OUT, left_out)
        if self._keyframes_only:
            if self._had_keyframe and not packet.is_keyframe:  # most packets of thousands of cameras: not worth waking a thread
                ledger.dropped(DropReason.SAMPLED_OUT)
                return
            self._had_keyframe = self._had_keyframe or packet.is_keyframe
        ledger.dropped(DropReason.OVERLOAD if self._order.config.is_live else DropReason.SHUTDOWN, self._inbox.put(packet))
        if not self._inbox.is_skipping:  # else it was given up on arrival
            self.stage.strand.wake()


class RunFeed:
    """BacklogSource, Backlog. For files only."""

    is_starved = False

    def __init__(self, order: Order) -> None:
        config, machine = order.config, order.machine
        file = sources.of_camera(config)
        assert isinstance(file, FileSource), "the configuration allows DALI for files only"
        lane = machine.engine.lanes[order.model]
        rotate = None if config.rotate == "auto" else config.rotate
        self._order = order
        self._source = BacklogSource(file, lane.model.input, dtype=lane.pool.rows.dtype, device=machine.device, rotate=rotate)
        self._ignored = False
        self.stage: Backlog | None = None
        self.reader: Reader[Run] = Reader(
            self._source, name=order.camera, realtime=False, on_open=self._opened, on_packet=self._run, on_end=order.read_end
        )

    def abandon(self) -> None:
        """See Feed."""
        self._ignored = True
        self.reader.stop()
        if self.stage is not None:
            self.stage.abandon()

    def _opened(self, info: StreamInfo) -> None:
        order = self._order
        self.stage = Backlog(
            BacklogConfig(order.camera, order.session, order.config.fps, self._source.first_pts),
            info,
            intake=order.intake(),
            ledger=order.ledger,
            pool=order.machine.pool,
            on_up=lambda: order.post("up", Up(info, info.width, info.height, "dali", None)),
            on_done=order.done,
        )
        order.post("open", None)

    def _run(self, run: Run) -> None:
        if self._ignored or self.stage is None:
            return
        self._order.ledger.received(len(run.frames))
        self._order.ledger.dropped(DropReason.SHUTDOWN, self.stage.put(run))


def _up(info: StreamInfo, frame: Frame, choice: decoders.Choice) -> Up:
    return Up(info, frame.width, frame.height, choice.name, choice.reason)
