"""Decoding on the GPU's NVDEC engines, through PyNvVideoCodec. The only module that imports it, and only when asked to: the import
fails on a machine without the NVIDIA driver.

Each frame that a decoder returns is the same device buffer, overwritten by its next decode. It may be read on the decoder's own CUDA
stream, where the order of the work protects it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from streamd import color
from streamd.decoders.bitstream import sequence_headers
from streamd.errors import DecodeError, DecoderUnavailable
from streamd.types import Frame, Packet, StreamInfo

_address_of = ctypes.pythonapi.PyBytes_AsString
_address_of.restype, _address_of.argtypes = ctypes.c_void_p, [ctypes.py_object]

_CODECS = {
    "h264": "H264",
    "hevc": "HEVC",
    "vp8": "VP8",
    "vp9": "VP9",
    "av1": "AV1",
    "mpeg2video": "MPEG2",
    "mpeg1video": "MPEG1",
}
"""FFmpeg's codec names and PyNvVideoCodec's. MPEG-4 Part 2 and MJPEG are left to the CPU: NVDEC takes only some of their streams."""
_MAX_PENDING = 64
"""Packets whose frame may still come. H.264 and HEVC hold back 16 frames at most."""
_LOSES_ODD_EDGES = {"mpeg1video", "mpeg2video"}
_CHROMA = {"400": "Monochrome", "420": "420", "422": "422", "444": "444"}


@functools.cache
def _library() -> Any:
    """PyNvVideoCodec, or DecoderUnavailable with what is missing."""
    try:
        import PyNvVideoCodec  # noqa: PLC0415
    except ImportError as error:
        missing = str(error)
        if "libnvidia-encode" in missing or "libnvcuvid" in missing:
            raise DecoderUnavailable(
                "the NVIDIA video driver libraries are missing; in a container set NVIDIA_DRIVER_CAPABILITIES=compute,video,utility"
            ) from None
        raise DecoderUnavailable("PyNvVideoCodec is not installed; pip install 'streamd[gpu]'") from None
    return PyNvVideoCodec


def sampling(pixel_format: str | None) -> tuple[str, int]:
    """Chroma sampling (`420`) and bit depth of an FFmpeg pixel format; (`420`, 8) where it is unknown.

    >>> sampling("yuv422p10le")
    ('422', 10)
    """
    name = (pixel_format or "yuv420p").replace("yuvj", "yuv")
    if name.startswith("gray"):
        return "400", _depth(name.removeprefix("gray"))
    if name in {"nv12", "p010le"}:
        return "420", 8 if name == "nv12" else 10
    if name.startswith("yuv") and "p" in name:
        chroma, _, depth = name.removeprefix("yuv").partition("p")
        return chroma, _depth(depth)
    return name, 8


def _depth(suffix: str) -> int:
    digits = "".join(letter for letter in suffix if letter.isdigit())
    return int(digits) if digits else 8


@functools.cache
def refusal(codec: str, pixel_format: str | None, width: int, height: int, gpu: int) -> str | None:
    """Why this GPU's NVDEC cannot take such a stream; None when it can. Raises DecoderUnavailable without driver or library."""
    library = _library()
    chroma, depth = sampling(pixel_format)
    if codec not in _CODECS or chroma not in _CHROMA:
        return f"NVDEC does not take {codec} with pixels of {pixel_format}"
    if codec in _LOSES_ODD_EDGES and (width % 2 or height % 2):
        return f"NVDEC leaves the last column or row of {codec} of odd size undecoded"
    try:
        caps = library.GetDecoderCaps(
            gpuid=gpu,
            codec=getattr(library.cudaVideoCodec, _CODECS[codec]),
            chromaformat=library.cudaVideoChromaFormat.__members__[_CHROMA[chroma]],
            bitdepth=depth,
        )
    except Exception as error:  # noqa: BLE001 - the binding raises several types of its own for "unsupported"
        return f"this GPU's NVDEC does not take {codec} with pixels of {pixel_format}: {error}"
    if not caps.get("num_decoder_engines"):
        return f"this GPU's NVDEC does not take {codec} with pixels of {pixel_format}"
    fits = caps["width_min"] <= width <= caps["width_max"] and caps["height_min"] <= height <= caps["height_max"]
    if width and not (fits and (width // 16) * (height // 16) <= caps["mb_num_max"]):
        low, high = f"{caps['width_min']}x{caps['height_min']}", f"{caps['width_max']}x{caps['height_max']}"
        return f"{width}x{height} is outside of what this GPU's NVDEC takes for {codec}, {low} to {high}"
    return None


class NvdecDecoder:
    """A Decoder (see base.py) on one CUDA stream."""

    name = "nvdec"

    def __init__(self, info: StreamInfo, *, stream: torch.cuda.Stream, low_latency: bool = True) -> None:
        self._library = _library()
        self._info = info
        self._stream = stream
        # LOW returns each frame at once, but only streams without B-frames have display order = decode order.
        self._low_latency = low_latency and info.reorder_frames == 0
        chroma, depth = sampling(info.pixel_format)
        self._is_grey = chroma == "400"
        self._depth = max(depth, 10)
        self._headers = b""
        self._session: Any = None
        self._retired: Any = None
        self._is_first_size = True
        self._is_shared = False
        self._tokens: dict[int, int] = {}
        self._planes: dict[int, Frame] = {}
        """By the address of the surface: a session uses few, again and again."""

    def _open(self) -> Any:
        library = self._library
        latency = library.DisplayDecodeLatencyType
        try:
            return library.CreateDecoder(
                gpuid=self._stream.device_index,
                codec=getattr(library.cudaVideoCodec, _CODECS[self._info.codec]),
                cudacontext=0,
                cudastream=self._stream.cuda_stream,
                usedevicememory=True,
                latency=latency.LOW if self._low_latency else latency.NATIVE,
            )
        except Exception as error:
            raise DecodeError(f"NVDEC cannot open a session for {self._info.codec}: {error}") from error

    def decode(self, packet: Packet) -> Sequence[Frame]:
        """See Decoder.decode. A key frame with other sequence headers (a new size, say) gets a session of its own."""
        self._retired = None
        frames: list[Frame] = []
        data = packet.data
        if packet.is_keyframe and not self._is_shared:
            headers = sequence_headers(self._info.codec, data)
            if self._session is None and not headers:
                data = self._info.extradata + data  # cameras may send them in the session description only
            elif self._session is not None and headers and headers != self._headers:
                frames.extend(self._flush())
                self._retired, self._session = self._session, None
                self._is_first_size = False
            self._headers = headers or self._headers
        if self._session is None:
            self._session = self._open()
            self._planes.clear()
        frames.extend(self._feed(data, packet))
        return frames

    def _feed(self, data: bytes, packet: Packet) -> Sequence[Frame]:
        # The parser gives out time stamps in rising order, whatever it was given: only the real ones come back with their own frame.
        stamp = packet.token if packet.pts is None else packet.pts
        self._tokens[stamp] = packet.token
        fed = self._library.PacketData()
        fed.bsl_data = _address_of(data)  # valid while `data` is referenced; Decode copies the bytes before it returns
        fed.bsl = len(data)
        fed.pts = stamp
        if self._low_latency:
            fed.decode_flag = self._library.VideoPacketFlag.ENDOFPICTURE
        return self._decoded(fed, newest=packet.token)

    def _flush(self) -> Sequence[Frame]:
        fed = self._library.PacketData()
        fed.decode_flag = self._library.VideoPacketFlag.ENDOFSTREAM
        return self._decoded(fed, newest=None)

    def _decoded(self, fed: Any, *, newest: int | None) -> Sequence[Frame]:
        try:
            surfaces = self._session.Decode(fed)
        except Exception as error:
            raise DecodeError(f"NVDEC rejects a packet of {self._info.codec}: {error}") from error
        return [self._frame(surface, self._token(surface.getPTS(), newest=newest)) for surface in surfaces]

    def _token(self, stamp: int, *, newest: int | None) -> int:
        """The token of the packet that a frame came from. Packets that never gave a frame are forgotten."""
        token = self._tokens.pop(stamp, None)
        if token is None and self._is_shared:
            return -1
        if token is None:  # a stamp that was doubled, or that the parser made up
            token = newest if self._low_latency and newest is not None else min(self._tokens.values(), default=-1)
        if len(self._tokens) > _MAX_PENDING:
            self._tokens = {stamp: waiting for stamp, waiting in self._tokens.items() if waiting > token - _MAX_PENDING}
        return token

    def drain(self) -> Sequence[Frame]:
        """See Decoder.drain."""
        self._retired = None
        return [] if self._session is None else self._flush()

    def _frame(self, surface: Any, token: int) -> Frame:
        address = surface.GetPtrToPlane(0)
        planes = self._planes.get(address)
        if planes is None:
            planes = self._planes[address] = self._view(surface, address)
        return replace(planes, token=token)

    def _view(self, surface: Any, address: int) -> Frame:
        """The surface's planes as tensors over the same device memory.

        NV12 and P016 are rows of luma, then rows of interleaved chroma pairs; YUV 4:4:4 is three full planes.
        """
        layout = str(surface.format).rsplit(".", maxsplit=1)[-1]
        wide = layout not in {"NV12", "YUV444", "NV16"}
        height, width = self._session.GetHeight(), surface.shape[1]
        chroma_height = height if layout in {"NV16", "P216"} else (height + 1) // 2
        planar = layout.startswith("YUV444")
        rows = 3 * height if planar else height + chroma_height
        memory = _Surface(address, shape=(rows, width), pitch=surface.strides[0], wide=wide)
        samples = torch.as_tensor(memory, device=f"cuda:{self._stream.device_index}")
        y = samples[:height]
        if planar:
            u, v = samples[height : 2 * height], samples[2 * height :]
        else:
            u, v = samples[height:, 0::2], samples[height:, 1::2]
        top, left, bottom, right = self._display_window(height, width)
        step_y, step_x = (1 if planar or chroma_height == height else 2), (1 if planar else 2)
        chroma_window = (slice(top // step_y, -(-bottom // step_y)), slice(left // step_x, -(-right // step_x)))
        matrix, full_range = color.resolve(self._info.color, height=bottom - top, pixel_format=self._info.pixel_format)
        return Frame(
            token=-1,
            y=y[top:bottom, left:right],
            u=None if self._is_grey else u[chroma_window],
            v=None if self._is_grey else v[chroma_window],
            bit_depth=self._depth if wide else 8,
            shift=16 - self._depth if wide else 0,
            matrix=matrix,
            full_range=full_range,
            rotation_deg=self._info.rotation_deg,
        )

    def _display_window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Top, left, bottom and right of the picture in its surface.

        Surfaces of odd streams are a column wider; those of streams that are cropped on the left or at the top keep what is to be cut away.
        """
        info = self._info
        if not self._is_first_size or width < info.width or height < info.height or not info.width:
            return 0, 0, height, width
        if width == info.width + 1 and info.width % 2:
            return height - info.height, 0, height, info.width
        return height - info.height, width - info.width, height, width

    def reassign(self, info: StreamInfo) -> None:
        """See keyframes.Session. Other sequence headers are no reason for a new session then: they describe pictures of the same format."""
        self._is_shared = True
        self._info = info
        self._planes.clear()

    def restart(self) -> bool:
        """See keyframes.Session. After the end of a stream the parser takes another one, from its parameter sets on."""
        self._tokens.clear()
        return True

    def close(self) -> None:
        """See Decoder.close."""
        self._session = self._retired = None
        self._planes.clear()


class _Surface:
    """Device memory of a decoder, for torch: the CUDA array interface, version 3, without a stream to wait for."""

    def __init__(self, address: int, *, shape: tuple[int, int], pitch: int, wide: bool) -> None:
        size = 2 if wide else 1
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": (pitch * size, size),
            "typestr": "<u2" if wide else "|u1",
            "data": (address, False),
            "version": 3,
            "stream": None,
        }
