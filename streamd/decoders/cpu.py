"""Decoding with FFmpeg on the CPU, through PyAV: every codec FFmpeg knows. Frames are handed over on the device the engine works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import av
import av.error
import torch
from av.codec.context import Flags, ThreadType
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.plane import VideoPlane
from torch import Tensor

from streamd import color
from streamd.errors import DecodeError, DecoderUnavailable
from streamd.types import ColorTags, Frame, Packet, StreamInfo

_PLANAR_DEPTHS = {
    f"{family}{suffix}": depth
    for family in ("yuv420p", "yuv422p", "yuv444p", "yuv440p", "gray", "gbrp")
    for suffix, depth in (("", 8), ("9le", 9), ("10le", 10), ("12le", 12))
} | {"yuvj420p": 8, "yuvj422p": 8, "yuvj444p": 8, "yuvj440p": 8}
"""Bits of the formats whose planes are used as they are; all others are converted first."""

_SOFTWARE = {"av1": "libdav1d"}
"""FFmpeg's decoder for a codec, where the one of the same name only drives hardware."""

_UNTAGGED = 2, 0
"""H.273's matrix for "unspecified", and FFmpeg's range."""


class CpuDecoder:
    """A Decoder (see base.py). One thread: a worker decodes many streams at once, and frame threads would add a frame of latency each."""

    name = "cpu"

    def __init__(self, info: StreamInfo, *, device: torch.device | str) -> None:
        self._info = info
        self._device = torch.device(device)
        try:
            context = av.CodecContext.create(_SOFTWARE.get(info.codec, info.codec), "r")
        except (ValueError, av.error.FFmpegError):
            raise DecoderUnavailable(f"FFmpeg has no decoder for {info.codec}") from None
        if not isinstance(context, VideoCodecContext):
            raise DecoderUnavailable(f"{info.codec} is not a video codec")
        context.thread_count = 1
        context.thread_type = ThreadType.SLICE
        context.flags |= Flags.unaligned  # cut pictures exactly, also on the left
        if info.extradata:
            context.extradata = info.extradata
        if info.codec != "h264" and info.width and info.height:
            # Some codecs do not carry the size in their packets. H.264 does, and its decoder would crop later pictures to what is set here.
            context.width, context.height = info.width, info.height
        # Without the reorder depth FFmpeg guesses it from the first frames, and loses those that come out of order meanwhile.
        context.reorder_depth = info.reorder_frames
        self._context: VideoCodecContext | None = context

    def decode(self, packet: Packet) -> Sequence[Frame]:
        """See Decoder.decode."""
        # FFmpeg's decoders read on behind the end. Packet(bytes) would lend out the bytes as they are; one made by its size is padded.
        encoded = av.Packet(len(packet.data))
        encoded.update(packet.data)
        encoded.pts = encoded.dts = packet.token
        encoded.time_base = Fraction(1, 1)
        encoded.is_keyframe = packet.is_keyframe
        return self._run(encoded)

    def drain(self) -> Sequence[Frame]:
        """See Decoder.drain."""
        return self._run(None)

    def _run(self, encoded: Any | None) -> Sequence[Frame]:
        assert self._context is not None, "the decoder is closed"
        try:
            decoded = self._context.decode(encoded)
        except av.error.FFmpegError as error:
            raise DecodeError(f"the CPU decoder rejects a packet of {self._info.codec}: {error.strerror}") from None
        frames = []
        for picture in decoded:
            if picture.pts is None:
                continue
            frame = frame_from_av(picture, token=picture.pts, tags=self._info.color, rotation_deg=self._info.rotation_deg)
            frames.append(frame if self._device.type == "cpu" else _moved(frame, self._device))
        return frames

    def reassign(self, info: StreamInfo) -> None:
        """See keyframes.Session. FFmpeg would fill holes of a damaged picture from the one before, which is another camera's, and give a
        picture without colour tags those of the last one that had some.
        """
        self._info = info
        self.restart()
        if self._context is not None:
            self._context.colorspace, self._context.color_range = _UNTAGGED

    def restart(self) -> bool:
        """See keyframes.Session."""
        if self._context is not None:
            self._context.flush_buffers()
        return True

    def close(self) -> None:
        """See Decoder.close."""
        self._context = None


def frame_from_av(picture: VideoFrame, *, token: int, tags: ColorTags, rotation_deg: int) -> Frame:
    """A PyAV picture as a Frame whose planes share its memory.

    Args:
        picture: any pixel format; RGB kinds become planes of G, B and R, other unusual ones are converted to yuv444p.
        token: of the packet it came from.
        tags: what the stream says of its colours, for what the picture itself leaves open.
        rotation_deg: clockwise turn still to be applied.
    """
    matrix_tag = int(picture.colorspace) if int(picture.colorspace) != 2 else tags.matrix
    range_tag = int(picture.color_range) or tags.range
    pixel_format = picture.format.name
    matrix, full_range = color.resolve(ColorTags(matrix_tag, range_tag), height=picture.height, pixel_format=pixel_format)
    depth = _PLANAR_DEPTHS.get(pixel_format)
    if depth is None:
        is_rgb = picture.format.is_rgb or pixel_format == "pal8"
        picture = picture.reformat(format="gbrp" if is_rgb else "yuv444p")
        depth = 8
        if is_rgb:
            matrix, full_range = color.resolve(ColorTags(0, 2), height=picture.height, pixel_format="gbrp")
    planes = [_plane_tensor(plane, wide=depth > 8) for plane in picture.planes[:3]]
    chroma = len(planes) == 3
    return Frame(
        token=token,
        y=planes[0],
        u=planes[1] if chroma else None,
        v=planes[2] if chroma else None,
        bit_depth=depth,
        shift=0,
        matrix=matrix,
        full_range=full_range,
        rotation_deg=rotation_deg,
    )


def _plane_tensor(plane: VideoPlane, *, wide: bool) -> Tensor:
    """A plane as a tensor of shape [height, width] over the same memory, uint8 or uint16."""
    samples = torch.frombuffer(plane, dtype=torch.uint16 if wide else torch.uint8)
    pitch = plane.line_size // samples.element_size()
    return samples.as_strided((plane.height, plane.width), (pitch, 1))


def _moved(frame: Frame, device: torch.device) -> Frame:
    u, v = (None if plane is None else plane.to(device) for plane in (frame.u, frame.v))
    return replace(frame, y=frame.y.to(device), u=u, v=v)
