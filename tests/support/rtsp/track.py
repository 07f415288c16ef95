"""A clip made ready to be sent: its access units cut into RTP payloads (H.264: RFC 6184, HEVC: RFC 7798), and its SDP (RFC 8866)."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
from av.bitstream import BitStreamFilterContext

CLOCK_HZ = 90_000
PAYLOAD_TYPE = 96
MAX_PAYLOAD_BYTES = 1400
"""With headers it fits into an Ethernet frame."""
_START_CODE = re.compile(rb"\x00\x00\x01")
_PARAMETER_SETS = {"h264": (7, 8), "hevc": (32, 33, 34)}


@dataclass(frozen=True, slots=True)
class AccessUnit:
    """One frame as RTP payloads; the last one carries the marker bit."""

    payloads: tuple[bytes, ...]
    bare_payloads: tuple[bytes, ...]
    """The same without parameter sets."""
    pts: int
    """90 kHz, from 0 for the first picture to be shown; never negative."""
    dts: int
    """90 kHz; when it is sent, relative to the first access unit."""
    is_keyframe: bool


@dataclass(frozen=True, slots=True)
class Track:
    """The video of a clip, in decode order."""

    codec: str
    access_units: tuple[AccessUnit, ...]
    duration: int
    """90 kHz; after it the clip begins again."""
    parameter_sets: tuple[bytes, ...]
    """NAL units without start code: SPS and PPS, for HEVC the VPS before them."""

    def sdp(self, *, address: str, with_parameter_sets: bool) -> bytes:
        """The session description."""
        name = "H264" if self.codec == "h264" else "H265"
        lines = [
            "v=0",
            f"o=- 1 1 IN IP4 {address}",
            "s=test camera",
            f"c=IN IP4 {address}",
            "t=0 0",
            "a=control:*",
            f"m=video 0 RTP/AVP {PAYLOAD_TYPE}",
            f"a=rtpmap:{PAYLOAD_TYPE} {name}/{CLOCK_HZ}",
            f"a=fmtp:{PAYLOAD_TYPE} {self._format_parameters(with_parameter_sets=with_parameter_sets)}",
            "a=control:track1",
        ]
        return "".join(line + "\r\n" for line in lines).encode()

    def _format_parameters(self, *, with_parameter_sets: bool) -> str:
        sets = [base64.b64encode(unit).decode() for unit in self.parameter_sets]
        if self.codec == "h264":
            profile = next(unit for unit in self.parameter_sets if unit[0] & 0x1F == 7)[1:4].hex()
            parameters = f"packetization-mode=1;profile-level-id={profile}"
            return f"{parameters};sprop-parameter-sets={','.join(sets)}" if with_parameter_sets else parameters
        by_name = zip(("sprop-vps", "sprop-sps", "sprop-pps"), sets, strict=False)
        return ";".join(f"{name}={value}" for name, value in by_name) if with_parameter_sets else "tx-mode=SRST"


def load_track(clip: Path) -> Track:
    """Read a clip whose video is H.264 or HEVC.

    An elementary stream has no timestamps: its frames are sent at its nominal rate, and it must hold no B-frames.
    """
    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        codec = stream.codec_context.name
        assert codec in _PARAMETER_SETS, f"{clip.name}: RTP for {codec} is not served here"
        frame_time = CLOCK_HZ / (stream.average_rate or stream.guessed_rate or Fraction(25))
        to_annex_b = BitStreamFilterContext(f"{codec}_mp4toannexb", stream)
        ticks = CLOCK_HZ * Fraction(stream.time_base or 1)
        coded: list[tuple[bytes, bool]] = []
        times: list[tuple[Fraction, Fraction]] = []
        for demuxed in container.demux(stream):
            if demuxed.size == 0:
                continue
            pts, dts, is_keyframe = demuxed.pts, demuxed.dts, demuxed.is_keyframe  # before the filter empties the packet
            by_count = len(times) * frame_time
            times.append((by_count, by_count) if pts is None or dts is None else (pts * ticks, dts * ticks))
            coded.append((b"".join(bytes(packet) for packet in to_annex_b.filter(demuxed)), is_keyframe))
    first_pts = min(shown for shown, _ in times)
    first_dts = times[0][1]
    sets: dict[int, bytes] = {}
    access_units = []
    for (data, is_keyframe), (shown, sent) in zip(coded, times, strict=True):
        units = list(nal_units(data))
        for unit in units:
            if nal_type(codec, unit) in _PARAMETER_SETS[codec]:
                sets.setdefault(nal_type(codec, unit), unit)
        bare = [unit for unit in units if nal_type(codec, unit) not in _PARAMETER_SETS[codec]]
        access_units.append(
            AccessUnit(
                payloads=tuple(payload for unit in units for payload in _payloads(codec, unit)),
                bare_payloads=tuple(payload for unit in bare for payload in _payloads(codec, unit)),
                pts=round(shown - first_pts),
                dts=round(sent - first_dts),
                is_keyframe=is_keyframe,
            )
        )
    duration = max(unit.pts for unit in access_units) + round(frame_time)
    return Track(codec, tuple(access_units), duration, tuple(sets[kind] for kind in sorted(sets)))


def nal_units(data: bytes) -> Iterator[bytes]:
    """The NAL units of an Annex B access unit, without start codes and trailing zeros."""
    starts = [match.end() for match in _START_CODE.finditer(data)]
    ends = [start - 3 for start in starts[1:]] + [len(data)]
    for start, end in zip(starts, ends, strict=True):
        unit = data[start:end].rstrip(b"\0")
        if unit:
            yield unit


def nal_type(codec: str, unit: bytes) -> int:
    """H.264: 5 an IDR slice, 7 SPS, 8 PPS; HEVC: 16 to 21 key pictures, 32 VPS, 33 SPS, 34 PPS."""
    return unit[0] & 0x1F if codec == "h264" else unit[0] >> 1 & 0x3F


def _payloads(codec: str, unit: bytes) -> Iterator[bytes]:
    """A NAL unit as it is, or in fragments: FU-A of RFC 6184, 5.8; FU of RFC 7798, 4.4.3."""
    if len(unit) <= MAX_PAYLOAD_BYTES:
        yield unit
        return
    kind = nal_type(codec, unit)
    if codec == "h264":
        header, body = bytes([unit[0] & 0xE0 | 28]), unit[1:]
    else:
        header, body = bytes([unit[0] & 0x81 | 49 << 1, unit[1]]), unit[2:]
    step = MAX_PAYLOAD_BYTES - len(header) - 1
    for start in range(0, len(body), step):
        first, last = start == 0, start + step >= len(body)
        yield header + bytes([first << 7 | last << 6 | kind]) + body[start : start + step]
