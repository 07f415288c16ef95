"""One connection's way from packets to samples: gate, decode, sample by time, preprocess. Runs on the decode pool; books every frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog
import torch

from streamd import decoders
from streamd.camera.inbox import Inbox
from streamd.camera.ledger import CameraLedger
from streamd.camera.pool import DecodePool
from streamd.camera.sampling import TimeSampler
from streamd.camera.turns import MOST, Urgency
from streamd.decoders.base import Decoder
from streamd.decoders.bitstream import is_skipped_leading
from streamd.decoders.keyframes import Session
from streamd.engine import Intake
from streamd.errors import DecodeError, StreamdError
from streamd.types import DropReason, Frame, FrameRef, Packet, StreamInfo

log = structlog.get_logger(__name__)

_REORDER_LIMIT = 64
"""Packets after which a frame that was not returned will never be. H.264 and HEVC hold back 16 frames at most."""


@dataclass(frozen=True, slots=True)
class DecodingConfig:
    """What a camera's configuration asks of its decoding."""

    camera: str
    session: str
    policy: str
    low_latency: bool
    keyframes_only: bool
    fps: float | None


class Decoding:
    """Work of a Strand. `on_up` is called with the first frame, `on_done` once at the end, both from a decode thread."""

    def __init__(
        self,
        config: DecodingConfig,
        info: StreamInfo,
        *,
        inbox: Inbox,
        intake: Intake,
        ledger: CameraLedger,
        device: torch.device,
        pool: DecodePool,
        keyframes: decoders.KeyframeDecoders,
        on_up: Callable[[Frame, decoders.Choice], None],
        on_done: Callable[[StreamdError | None], None],
    ) -> None:
        self._config = config
        # Key frames alone are shown in the order in which they come.
        self._info = replace(info, reorder_frames=0) if config.keyframes_only else info
        self._inbox = inbox
        self._intake = intake
        self._ledger = ledger
        self._device = device
        self._on_up = on_up
        self._on_done = on_done
        self._choice = decoders.choose(info, policy=config.policy, device=device)
        self._keyframes = keyframes
        self._decoder: Decoder | None = None
        self._pending: dict[int, Packet] = {}
        self._starting = True
        self._skip_leading = False
        self._opening: Packet | None = None
        """The key frame that decoding began with, at the start or after a gap, until it is shown."""
        self._last_token = -1
        self._sampler = TimeSampler(config.fps)
        self._errors_in_a_row = 0
        self._is_up = False
        self._abandoned = False
        self._is_done = False
        self._log = log.bind(camera=config.camera, session=config.session)
        self.strand = pool.strand(self, urgency=self._urgency)

    def _urgency(self) -> Urgency:
        """What has ended must not wait for a thread that is overloaded."""
        return MOST if self._inbox.is_closed else (self._intake.rank, self._inbox.lost_share)

    def close(self) -> None:
        """No packet follows: decode what was received, then end."""
        self._inbox.close()
        self.strand.hasten()

    def abandon(self) -> None:
        """Stop early: what is queued and what the decoder holds is given up."""
        self._abandoned = True
        self._ledger.dropped(DropReason.SHUTDOWN, self._inbox.clear())
        self.strand.hasten()

    # --- on a decode thread

    def step(self) -> bool:
        """See pool.Work."""
        if self._is_done:
            return False
        if self._abandoned:
            self._finish(None, drain=False)
            return False
        if not self._intake.has_room(self.strand.wake):
            return False
        self._ledger.dropped(DropReason.OVERLOAD, self._inbox.give_up(time.monotonic_ns()))
        packet = self._inbox.take()
        if packet is None:
            if self._inbox.is_exhausted:
                self._finish(None, drain=True)
            return False
        self._packet(packet)
        return True

    def crashed(self, error: BaseException) -> None:
        """See pool.Work."""
        if not isinstance(error, StreamdError):
            self._log.error("decoding_crashed", exc_info=error)
            error = StreamdError(f"decoding failed: {type(error).__name__}")
        self._finish(error, drain=False)

    def _finish(self, error: StreamdError | None, *, drain: bool) -> None:
        if drain and self._decoder is not None:
            self._intake.settle()
            try:
                self._frames(self._decoder.drain())
            except DecodeError as fault:
                self._log.warning("decode_error", detail=str(fault))
        self._ledger.dropped(DropReason.UNDECODED if drain else DropReason.SHUTDOWN, len(self._pending))
        self._pending.clear()
        self._close_decoder()
        self._is_done = True
        self.strand.close()
        self._ledger.dropped(DropReason.SHUTDOWN, self._inbox.clear())
        self._on_done(error)

    def _packet(self, packet: Packet) -> None:
        follows = packet.token == self._last_token + 1
        self._last_token = packet.token
        if self._starting:
            if not packet.is_keyframe:
                self._ledger.dropped(DropReason.BEFORE_KEYFRAME)
                return
            self._starting = False
            self._opening = packet
            self._skip_leading = True
        elif packet.is_keyframe:
            # After packets that were given up it is as at the start: what leads the key frame refers to frames that never came.
            self._skip_leading = not follows
            self._opening = self._opening if follows else packet
        elif self._skip_leading and is_skipped_leading(self._info.codec, packet.data):
            self._ledger.dropped(DropReason.BEFORE_KEYFRAME)
            return
        if self._config.keyframes_only and not packet.is_keyframe:
            self._ledger.dropped(DropReason.SAMPLED_OUT)
            return
        self._pending[packet.token] = packet
        if self._config.keyframes_only:
            self._intake.flush()  # the decoder may be about to overwrite another camera's frame
        else:
            self._intake.settle()  # the decoder is about to overwrite the frame before
        self._intake.raise_failure()
        try:
            if self._decoder is None:
                self._decoder = self._new_decoder()
            frames = self._decoder.decode(packet)
            self._frames(frames)
            if self._config.keyframes_only and not frames:  # it will never come
                del self._pending[packet.token]
                self._ledger.dropped(DropReason.UNDECODED)
        except DecodeError as error:
            self._skip_to_keyframe(error)

    def _new_decoder(self) -> Decoder:
        """On this thread's CUDA stream, which preprocessing uses too."""
        if self._config.keyframes_only:
            return self._keyframes.decoder(self._choice.name, self._info, self._create)
        try:
            return self._create(self._info)
        except DecodeError as error:
            if self._config.policy != "auto" or self._choice.name == "cpu":
                raise
            self._choice = decoders.Choice("cpu", str(error))
            return self._create(self._info)

    def _create(self, info: StreamInfo) -> Session:
        return decoders.create(self._choice, info, device=self._device, low_latency=self._config.low_latency)

    def _skip_to_keyframe(self, error: DecodeError) -> None:
        """A decoder that raised is not used again; the next key frame gets a new one."""
        self._errors_in_a_row += 1
        if self._errors_in_a_row in {1, 10, 100, 1000}:
            self._log.warning("decode_error", detail=str(error), in_a_row=self._errors_in_a_row)
        self._ledger.dropped(DropReason.DECODE_ERROR, len(self._pending))
        self._pending.clear()
        self._close_decoder()
        self._starting = True

    def _close_decoder(self) -> None:
        decoder, self._decoder = self._decoder, None
        if decoder is not None:
            self._intake.settle()
            try:
                decoder.close()
            except Exception:  # noqa: BLE001 - it may be broken already, and the owner must hear of the end
                self._log.exception("close_failed")

    def _frames(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            packet = self._pending.pop(frame.token, None)
            if packet is not None:  # else a second picture from one packet, of which the first was booked
                self._errors_in_a_row = 0
                self._ledger.decoded()
                if not self._is_up:
                    self._is_up = True
                    self._on_up(frame, self._choice)
                self._frame(frame, packet)
        if frames:
            lost = [token for token in self._pending if token < frames[-1].token - _REORDER_LIMIT]
            for token in lost:
                del self._pending[token]
            self._ledger.dropped(DropReason.UNDECODED, len(lost))

    def _frame(self, frame: Frame, packet: Packet) -> None:
        decoded_ns = time.monotonic_ns()
        if packet.is_discard:
            self._ledger.dropped(DropReason.CUT)
            return
        if self._opening is not None and packet.token >= self._opening.token:
            if _precedes(packet, self._opening):
                self._ledger.dropped(DropReason.BEFORE_KEYFRAME)
                return
            self._opening = None
        if not self._sampler.wants(_time_s(packet, self._info)):
            self._ledger.dropped(DropReason.SAMPLED_OUT)
            return
        if self._intake.is_stale(packet.received_ns):  # decoded for those that refer to it
            self._ledger.dropped(DropReason.STALE)
            return
        slot = self._intake.take_slot()
        if slot is None:
            self._ledger.dropped(DropReason.OVERLOAD)
            return
        ref = FrameRef(
            camera=self._config.camera,
            session=self._config.session,
            sequence=packet.token,
            pts=packet.pts,
            time_base=self._info.time_base,
            captured_ns=packet.captured_ns,
            received_ns=packet.received_ns,
            decoded_ns=decoded_ns,
        )
        self._intake.put(frame, ref, slot)


def _precedes(packet: Packet, opening: Packet) -> bool:
    """Whether a frame that is shown before the key frame `opening` was decoded after it: then it refers to frames that never came."""
    if packet.token == opening.token or packet.token > opening.token + _REORDER_LIMIT:
        return False
    return packet.pts is None or opening.pts is None or packet.pts < opening.pts


def _time_s(packet: Packet, info: StreamInfo) -> float:
    """The frame's place in media time. Where the stream has no time stamps, its number tells, and without a frame rate its arrival."""
    if packet.pts is not None:
        return packet.pts * info.time_base.numerator / info.time_base.denominator
    if info.frame_rate:
        return packet.token / float(info.frame_rate)
    return packet.received_ns / 1e9
