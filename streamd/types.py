"""The values that travel through a worker: StreamInfo, Packet, Frame, FrameRef, Sample, Batch, Scores.

All are frozen. This module imports no heavy library: tensors are named for the type checker only. Times named `_ns` are integers in
nanoseconds; `received_ns` and every stage time come from `time.monotonic_ns()`, `captured_ns` from the wall clock (Unix epoch).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class Matrix(enum.Enum):
    """How Y'CbCr was made from R'G'B'. Luma coefficients (kr, kb) as in ITU-T H.273, table 4."""

    BT601 = (0.299, 0.114)
    BT709 = (0.2126, 0.0722)
    BT2020 = (0.2627, 0.0593)
    FCC = (0.30, 0.11)
    SMPTE240M = (0.212, 0.087)
    IDENTITY = (0.0, 0.0)
    """The planes are G, B, R themselves (H.273 matrix 0)."""


@dataclass(frozen=True, slots=True)
class ColorTags:
    """What the stream itself says of its colours: H.273 `matrix_coefficients` and range (0 unknown, 1 limited, 2 full)."""

    matrix: int = 2
    range: int = 0


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What a source knows of its video stream before the first packet. Sizes may change later: trust the frame's own."""

    codec: str
    """FFmpeg's codec id name: `h264`, `hevc`, `vp9`, `av1`, `mpeg2video`, `mjpeg`, …"""
    width: int
    height: int
    time_base: Fraction
    """Seconds per pts tick."""
    profile: str | None = None
    pixel_format: str | None = None
    """FFmpeg's name, `yuv420p10le` say; None where the container does not tell."""
    frame_rate: Fraction | None = None
    """Average frames per second as the container declares it; a hint, often wrong."""
    extradata: bytes = b""
    """Codec configuration; for H.264 and HEVC the parameter sets in Annex B form."""
    color: ColorTags = ColorTags()
    rotation_deg: int = 0
    """Clockwise turn that shows the picture upright: 0, 90, 180 or 270."""
    reorder_frames: int = 0
    """How many frames a decoder must hold back: 0 for a stream without B-frames."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One access unit, encoded. H.264 and HEVC are in Annex B form."""

    data: bytes
    token: int
    """Counts the packets of a session from 0; decoders hand it back with the frame, so nothing depends on the camera's clock."""
    pts: int | None
    dts: int | None
    is_keyframe: bool
    is_corrupt: bool
    """The demuxer saw damage: a transport error or a gap."""
    is_discard: bool
    """To be decoded but not shown: the container cuts this frame away (an edit list, say)."""
    received_ns: int
    captured_ns: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded picture where the decoder left it. Valid until the next call of the decoder that made it.

    The planes are views of shape [height, width] (chroma: subsampled), uint8 or uint16, on the decoder's device, cut to the display size.
    A semi-planar surface (NV12, P010) gives `u` and `v` as strided views of its one chroma plane.
    """

    token: int
    y: Tensor
    u: Tensor | None
    """None for grey pictures, whose `v` is None too."""
    v: Tensor | None
    bit_depth: int
    """Significant bits of a sample: 8, 10, 12."""
    shift: int
    """Bits below the significant ones: 6 for P010, whose samples are left-aligned in 16 bits; else 0."""
    matrix: Matrix
    full_range: bool
    rotation_deg: int
    """Clockwise turn still to be applied: 0, 90, 180 or 270."""

    @property
    def height(self) -> int:
        return int(self.y.shape[0])

    @property
    def width(self) -> int:
        return int(self.y.shape[1])

    def __repr__(self) -> str:
        return f"Frame(token={self.token}, {self.width}x{self.height}, {self.bit_depth} bit, {self.matrix.name}, {self.y.device})"


@dataclass(frozen=True, slots=True)
class FrameRef:
    """Which frame a sample, a score or a result is about. Pure data: it keeps no device memory alive."""

    camera: str
    session: str
    """Changes with each connection of the camera."""
    sequence: int
    """Number of the frame's packet within the session, from 0."""
    pts: int | None
    time_base: Fraction
    captured_ns: int
    received_ns: int
    decoded_ns: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A preprocessed frame: its pixels lie in row `slot` of the engine's slot pool."""

    ref: FrameRef
    slot: int
    ready_ns: int
    """When preprocessing was issued, monotonic."""
    expires_ns: int | None
    """Monotonic time after which the sample is dropped instead of classified; None waits for ever."""
    rank: int = 0
    """Higher ranks go first."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples that go through the model together, oldest first."""

    samples: Sequence[Sample]
    formed_ns: int


@dataclass(frozen=True, slots=True)
class Scores:
    """What the model said of one frame: the k best classes, best first."""

    ref: FrameRef
    classes: tuple[int, ...]
    probabilities: tuple[float, ...]
    """Softmax over all classes of the model, in [0, 1]."""
    ready_ns: int
    batched_ns: int
    inferred_ns: int
    batch_size: int


class DropReason(enum.StrEnum):
    """Why a received frame has no result. Each received frame is published, in flight, or counted under one of these."""

    SAMPLED_OUT = "sampled_out"
    """Not wanted: `fps` or `decode: keyframes` asks for fewer frames than the stream has."""
    BEFORE_KEYFRAME = "before_keyframe"
    """Not decodable: it arrived before the first key frame, or leads it and refers to frames before it."""
    UNDECODED = "undecoded"
    """The decoder took its packet and returned no frame."""
    DECODE_ERROR = "decode_error"
    """The decoder rejected its packet."""
    CUT = "cut"
    """The container says that this frame is not to be shown."""
    OVERLOAD = "overload"
    """The worker had no room: an older frame made way for a newer one."""
    STALE = "stale"
    """Older than `max_age` before inference."""
    SHUTDOWN = "shutdown"
    """In flight when its camera was stopped, or its session ended by an error."""
    SINK_FULL = "sink_full"
    """The result was made, but the sinks were away, and their queue and spool were full."""
    EXPIRED = "expired"
    """The result waited on disk for longer than `spool.max_age`."""
    LOST_IN_CRASH = "lost_in_crash"
    """In flight when its worker or the daemon died, or in a spool file that was damaged."""


@dataclass(slots=True)
class Ledger:
    """Counts of one camera's frames since its worker started: received = published + dropped + in flight.

    Several threads of a worker book into it, under one lock: see streamd/camera/ledger.py.
    """

    received: int = 0
    decoded: int = 0
    published: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        return self.received - self.published - sum(self.dropped.values())
