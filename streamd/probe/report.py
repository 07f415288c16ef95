"""What a probe found, as `streamd probe --json` prints it. Times in seconds, sizes in pixels, rates a second.

Adding a field keeps `schema`; renaming, removing or changing the meaning of one raises it.
"""

from __future__ import annotations

from msgspec import Struct


class Gop(Struct, frozen=True, kw_only=True):
    """From one key frame to the next."""

    frames: int | None = None
    """The longest distance that was seen; None where only one key frame came."""
    shortest: int | None = None
    seconds: float | None = None
    """Mean distance; None without time stamps."""
    at_least: int | None = None
    """Only one key frame came: this many frames, and none of them the next one."""


class Color(Struct, frozen=True, kw_only=True):
    """How pixels are turned into RGB."""

    matrix: str
    """`bt601`, `bt709`, `bt2020`, …"""
    full_range: bool
    matrix_tagged: bool
    """False: the stream does not say, and the matrix is BT.601 below 720 lines and BT.709 from there on."""
    range_tagged: bool
    """False: the stream does not say, and its pixel format decides, which means limited for nearly all."""


class Times(Struct, frozen=True, kw_only=True):
    """Seconds since the attempt began."""

    open: float
    first_packet: float
    first_frame: float
    """When the first decoded frame was there: its last packet's arrival, and the time it took to decode."""


class Verdict(Struct, frozen=True, kw_only=True):
    """Which decoder takes the stream on this machine."""

    name: str
    """`nvdec` or `cpu`."""
    reason: str | None = None
    """Why not NVDEC."""


class Report(Struct, frozen=True, kw_only=True):
    """One look at one address."""

    schema: int = 1
    address: str
    """Without credentials."""
    live: bool
    codec: str
    profile: str | None
    width: int
    """Of the decoded frame, as it is stored: before any rotation."""
    height: int
    pixel_format: str
    bit_depth: int
    rotation_deg: int
    """Clockwise turn that shows the picture upright."""
    frame_rate_declared: float | None
    frame_rate_measured: float | None
    """By time stamps; None where there are none."""
    gop: Gop
    b_frames: bool
    color: Color
    bit_rate: float | None
    """Bits a second of the video stream, over what was read."""
    times: Times
    decoder: Verdict
    packets: int
    """How many were read."""
    seconds: float | None
    """How much video they are."""
    notes: list[str]
    """What a person should know about this stream, one sentence each."""


class Fault(Struct, frozen=True, kw_only=True):
    """What `streamd probe --json` prints when there is no report."""

    schema: int = 1
    address: str
    error: str
    """One word: `unreachable`, `timeout`, `unauthorized`, `not_found`, `not_video`, `no_frames`, `disconnected`."""
    message: str
