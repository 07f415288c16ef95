"""Decodes the first frames that a watch kept, on the CPU, and puts everything together into a Report."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass

from streamd.daemon.placement import visible_gpus
from streamd.decoders import nvdec
from streamd.decoders.cpu import CpuDecoder
from streamd.errors import DecodeError, DecoderUnavailable
from streamd.probe import measure
from streamd.probe.report import Color, Report, Times, Verdict
from streamd.probe.watch import Watched, no_picture
from streamd.redact import redact
from streamd.types import Frame, StreamInfo

_DECODED_PACKETS = 25
"""After the first frame: enough to see whether decoding goes well."""
_LONG_GOP_S = 4.0
_UNKNOWN_MATRIX = 2
_NO_TIME_STAMPS = "it has no time stamps: a declared frame rate is only a guess, and `fps` and `realtime` go by that"


@dataclass(frozen=True, slots=True)
class _Picture:
    """The first frame. Plain data: a Frame is gone with the next call of its decoder."""

    width: int
    height: int
    bit_depth: int
    chroma: str
    color: Color
    ready_ns: int
    """On the scale of `time.monotonic_ns()`: the arrival of the packet that completed it, plus the time spent decoding."""


def examine(watched: Watched, *, shown: str, live: bool) -> Report:
    """The report on what was watched at the address `shown`. Raises NoFrames, DecoderUnavailable."""
    info = watched.info
    picture, rejected = _decode(watched)
    if picture is None:
        raise no_picture(watched, shown=shown)
    declared = round(float(info.frame_rate), 3) if info.frame_rate else None
    measured = measure.frame_rate(watched.seen, info.time_base)
    rate = measured or declared
    seconds = len(watched.seen) / rate if rate else None
    gop = measure.gop(watched.seen, rate)
    pixel_format = info.pixel_format or f"yuv{picture.chroma}p{picture.bit_depth if picture.bit_depth > 8 else ''}"
    return Report(
        address=shown,
        live=live,
        codec=info.codec,
        profile=info.profile,
        width=picture.width,
        height=picture.height,
        pixel_format=pixel_format,
        bit_depth=picture.bit_depth,
        rotation_deg=info.rotation_deg,
        frame_rate_declared=declared,
        frame_rate_measured=measured,
        gop=gop,
        b_frames=measure.has_b_frames(watched.seen) or (measured is None and info.reorder_frames > 0),
        color=picture.color,
        bit_rate=measure.bit_rate(watched.seen, seconds),
        times=Times(
            open=_since(watched, watched.opened_ns),
            first_packet=_since(watched, max(watched.seen[0].received_ns, watched.opened_ns)),
            first_frame=_since(watched, max(picture.ready_ns, watched.opened_ns)),
        ),
        decoder=_verdict(info, picture, pixel_format),
        packets=len(watched.seen),
        seconds=None if seconds is None else round(seconds, 3),
        notes=_notes(watched, rejected=rejected, live=live, gop_s=gop.seconds),
    )


def _since(watched: Watched, moment_ns: int) -> float:
    return round((moment_ns - watched.started_ns) / 1e9, 3)


def _decode(watched: Watched) -> tuple[_Picture | None, int]:
    """The first picture, and how many packets the decoder rejected until some time after it."""
    picture, rejected, last = None, 0, len(watched.head)
    decoder = CpuDecoder(watched.info, device="cpu")
    started_ns = time.monotonic_ns()
    for number, packet in enumerate(watched.head):
        if number > last:
            break
        try:
            frames = decoder.decode(packet)
        except DecodeError:
            rejected += 1
            decoder.close()
            decoder = CpuDecoder(watched.info, device="cpu")
            continue
        if picture is None and frames:
            picture = _described(frames[0], watched.info, ready_ns=packet.received_ns + time.monotonic_ns() - started_ns)
            last = number + _DECODED_PACKETS
    if picture is None and watched.head:
        with contextlib.suppress(DecodeError):
            for frame in decoder.drain()[:1]:
                picture = _described(frame, watched.info, ready_ns=watched.head[-1].received_ns + time.monotonic_ns() - started_ns)
    decoder.close()
    return picture, rejected


def _described(frame: Frame, info: StreamInfo, *, ready_ns: int) -> _Picture:
    return _Picture(
        width=frame.width,
        height=frame.height,
        bit_depth=frame.bit_depth,
        chroma=_chroma(frame),
        color=Color(
            matrix=frame.matrix.name.lower(),
            full_range=frame.full_range,
            matrix_tagged=info.color.matrix != _UNKNOWN_MATRIX,
            range_tagged=info.color.range != 0,
        ),
        ready_ns=ready_ns,
    )


def _chroma(frame: Frame) -> str:
    if frame.u is None:
        return "400"
    halved = frame.u.shape[1] < frame.width, frame.u.shape[0] < frame.height
    return {(True, True): "420", (True, False): "422", (False, True): "440", (False, False): "444"}[halved]


def _verdict(info: StreamInfo, picture: _Picture, pixel_format: str) -> Verdict:
    gpus = visible_gpus(os.environ)
    if not gpus:
        return Verdict(name="cpu", reason="no NVIDIA driver here")
    try:
        refusal = nvdec.refusal(info.codec, pixel_format, picture.width, picture.height, 0)
    except DecoderUnavailable as error:
        refusal = str(error)
    return Verdict(name="nvdec") if refusal is None else Verdict(name="cpu", reason=refusal)


def _notes(watched: Watched, *, rejected: int, live: bool, gop_s: float | None) -> list[str]:
    notes = []
    if watched.broke_off is not None:
        notes.append(f"the stream broke off after {len(watched.seen)} packets: {redact(str(watched.broke_off))}")
    corrupt = sum(packet.is_corrupt for packet in watched.seen)
    if corrupt:
        notes.append(f"{corrupt} of {len(watched.seen)} packets were damaged on the way; over UDP, try --transport tcp")
    if rejected:
        notes.append(f"the decoder rejected {rejected} packets")
    if all(packet.pts is None for packet in watched.seen):
        notes.append(_NO_TIME_STAMPS)
    if not live:
        return notes
    if watched.keyframes < 2 and watched.broke_off is None:
        notes.append("only one key frame came: watch longer with --seconds to learn the distance between key frames")
    if gop_s is not None and gop_s > _LONG_GOP_S:
        notes.append(
            f"key frames are {gop_s:.1f} s apart: after a loss nothing can be decoded for so long; 1 to 2 s suits, set it in the camera"
        )
    if measure.has_b_frames(watched.seen):
        notes.append("B-frames delay each result by some frames; a camera that is watched live is better without, set it in the camera")
    return notes
