"""PyAV's demuxer as a source of packets: opens one container, picks its video stream, yields encoded packets. It decodes at most one
frame, to learn the rotation and the colours, which PyAV tells nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import av
import av.bitstream
import av.error
import av.logging
from av.container import InputContainer
from av.packet import Packet as AvPacket
from av.stream import Discard, Disposition
from av.video.stream import VideoStream

from streamd.errors import Disconnected, NotVideo, SourceError
from streamd.sources import faults
from streamd.sources.parameter_sets import is_annex_b, to_annex_b
from streamd.types import ColorTags, Packet, StreamInfo

av.logging.set_level(None)  # PyAV's log callback takes the GIL from FFmpeg's threads, and repeats addresses with their passwords

_ROTATING_CONTAINERS = {"mov", "matroska", "webm"}
_PEEK_PACKETS = 64
"""How many packets to try for the first frame when looking for a rotation."""
_MAX_FRAME_RATE = 1000
"""Frames per second; above it, and at or below zero, FFmpeg's estimate is a mistake. Over RTSP it often is: -1908032/21865 was seen."""


@dataclass(frozen=True, slots=True)
class Address:
    """What to open, and what may be said of it."""

    url: str = field(repr=False)
    """For FFmpeg; may hold credentials."""
    shown: str
    """The same without credentials, for messages."""
    options: dict[str, str]
    live: bool
    """A live stream has no end: its end is an error."""
    open_timeout_s: float
    read_timeout_s: float


class Demuxer:
    """A Source (see base.py) over one address."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._container: InputContainer | None = None
        self._stream: VideoStream | None = None
        self._filter: av.bitstream.BitStreamFilterContext | None = None
        self._peeked: list[AvPacket[VideoStream]] = []
        self._token = 0

    def open(self) -> StreamInfo:
        """See Source.open."""
        address = self._address
        started_s = time.monotonic()
        try:
            container = av.open(address.url, options=address.options, metadata_errors="replace")
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise faults.of_open(error, where=address.shown, started_s=started_s, timeout_s=address.open_timeout_s) from None
        self._container = container
        try:
            self._stream = stream = self._pick(container)
            return self._describe(container, stream)
        except SourceError:
            self.close()
            raise
        except (av.error.FFmpegError, ValueError) as error:
            self.close()
            raise faults.of_open(error, where=address.shown, started_s=started_s, timeout_s=address.open_timeout_s) from None

    def _pick(self, container: InputContainer) -> VideoStream:
        """The first video stream that is no cover picture; all others are not even read."""
        picture = Disposition.attached_pic
        videos = [stream for stream in container.streams.video if not stream.disposition & picture]
        if not videos:
            kinds = sorted({"a cover picture" if stream.type == "video" else stream.type for stream in container.streams}, reverse=True)
            raise NotVideo(f"{self._address.shown} holds no video, only {' and '.join(kinds) or 'nothing'}")
        for stream in container.streams:
            if stream is not videos[0]:
                stream.discard = Discard.all
        return videos[0]

    def _describe(self, container: InputContainer, stream: VideoStream) -> StreamInfo:
        context = stream.codec_context
        codec = context.codec.canonical_name
        extradata = context.extradata or b""
        if codec in {"h264", "hevc"} and extradata and not is_annex_b(extradata):
            self._filter = av.bitstream.BitStreamFilterContext(f"{codec}_mp4toannexb", stream)
            extradata = to_annex_b(codec, extradata)
        if stream.time_base is None:
            raise NotVideo(f"{self._address.shown} has a video stream without a time base")
        info = StreamInfo(
            codec=codec,
            width=context.width,
            height=context.height,
            time_base=Fraction(stream.time_base.numerator, stream.time_base.denominator),
            profile=context.profile,
            pixel_format=context.pix_fmt,
            frame_rate=_plausible(stream.average_rate),
            extradata=extradata,
            color=ColorTags(matrix=int(context.colorspace), range=int(context.color_range)),
            reorder_frames=context.reorder_depth,
        )
        if _ROTATING_CONTAINERS & set(container.format.name.split(",")):
            info = self._peek(container, stream, info)
        return info

    def _peek(self, container: InputContainer, stream: VideoStream, info: StreamInfo) -> StreamInfo:
        """Decode up to the first frame for its display matrix; the packets are kept and yielded later."""
        for packet in container.demux(stream):
            is_last = packet.size == 0  # PyAV ends with an empty packet, which drains the decoder
            if not is_last:
                self._peeked.append(packet)
            try:
                frames = stream.decode(packet)
            except av.error.FFmpegError:
                frames = []
            if frames:
                first = frames[0]
                # PyAV: degrees by which the display matrix turns the picture counterclockwise
                turn = round(-first.rotation / 90) * 90 % 360
                # the stream's own tags go before those of the container, as FFmpeg's decoders have it
                tags = ColorTags(matrix=int(first.colorspace), range=int(first.color_range))
                return replace(info, rotation_deg=turn, color=tags, pixel_format=info.pixel_format or first.format.name)
            if is_last or len(self._peeked) >= _PEEK_PACKETS:
                break
        return info

    def packets(self) -> Iterator[Packet]:
        """See Source.packets."""
        container, stream, address = self._container, self._stream, self._address
        assert container is not None
        assert stream is not None
        for packet in self._peeked:
            yield from self._filtered(packet)
        self._peeked.clear()
        demuxed = container.demux(stream)
        waited_s = 0.0  # by the longest read: when a stream stalls, some demuxers still give out what they hold before they raise
        while True:
            started_s = time.monotonic()
            try:
                packet = next(demuxed)
            except StopIteration:
                break
            except (av.error.FFmpegError, OSError, ValueError) as error:
                waited_s = max(waited_s, time.monotonic() - started_s)
                raise faults.of_read(error, where=address.shown, waited_s=waited_s, timeout_s=address.read_timeout_s) from None
            waited_s = max(waited_s, time.monotonic() - started_s)
            if packet.size == 0:  # the end
                break
            yield from self._filtered(packet)
        if address.live:
            raise Disconnected(f"{address.shown} ended the stream")

    def _filtered(self, packet: AvPacket[VideoStream]) -> Iterator[Packet]:
        received_ns, captured_ns = time.monotonic_ns(), time.time_ns()
        if self._filter is None:
            encoded = [packet]
        else:
            try:
                encoded = self._filter.filter(packet)
            except (av.error.FFmpegError, ValueError):
                return  # not a packet of this codec: damage inside the container
        for unit in encoded:
            yield Packet(
                data=bytes(unit),
                token=self._token,
                pts=unit.pts,
                dts=unit.dts,
                is_keyframe=unit.is_keyframe,
                is_corrupt=unit.is_corrupt,
                is_discard=unit.is_discard,
                received_ns=received_ns,
                captured_ns=captured_ns,
            )
            self._token += 1

    def close(self) -> None:
        """See Source.close."""
        container, self._container = self._container, None
        self._stream = self._filter = None
        self._peeked.clear()
        if container is not None:
            container.close()


def _plausible(rate: Fraction | None) -> Fraction | None:
    """A frame rate as it is, or None where it cannot be one."""
    return Fraction(rate.numerator, rate.denominator) if rate is not None and 0 < rate <= _MAX_FRAME_RATE else None
