"""Clips made with PyAV whose pictures say which camera and frame they are, so that order, loss and mixing can be proven.

A picture is a moving coloured texture with 8 x 4 black or white cells in its middle. A cell's side is a tenth of the picture's shorter
side, so the marker survives lossy coding, 4:2:0, 10 bits, scaling, and a centre crop to more than 80 %. Row by row, most significant bit
first, the cells hold the frame number (16 bits), the camera's number (8 bits) and a CRC-8 of both. No sound, no variable frame rate.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import ColorRange, Colorspace

COLUMNS = 8
ROWS = 4
CELL_FRACTION = 0.1
"""A cell's side as a fraction of the picture's shorter side."""
RAW_FORMATS = {".h264": "h264", ".264": "h264", ".hevc": "hevc", ".h265": "hevc", ".265": "hevc", ".ts": "mpegts"}
ENCODERS = {"h264": "libx264", "hevc": "libx265", "vp8": "libvpx", "vp9": "libvpx-vp9", "av1": "libsvtav1"}
H273_MATRIX = {"bt709": 1, "fcc": 4, "bt470bg": 5, "smpte170m": 6, "smpte240m": 7, "bt2020nc": 9}

Region = tuple[float, float, float, float]
"""Left, top, right, bottom of the marker as fractions of a picture's width and height."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What a picture says of itself."""

    camera: int
    frame: int


def marker_region(size: tuple[int, int], *, crop: tuple[float, float] | None = None) -> Region:
    """Where the marker lies in a picture made from a clip of `size` (width, height).

    Args:
        size: the clip's own.
        crop: width and height, in the clip's pixels, of a centred part that was kept; None where all of it was. For torchvision's
            "resize the shorter side to 256, centre crop 224": `(short * 224 / 256, short * 224 / 256)`.
    """
    cell = CELL_FRACTION * min(size)
    width, height = crop or size
    half_x, half_y = COLUMNS * cell / 2 / width, ROWS * cell / 2 / height
    return (0.5 - half_x, 0.5 - half_y, 0.5 + half_x, 0.5 + half_y)


def read_marker(image: npt.NDArray[Any], *, region: Region | None = None) -> Marker | None:
    """The marker of a picture [height, width, 3] or [height, width], uint8 (or any scale: only contrast counts).

    Args:
        image: RGB or luma.
        region: from `marker_region`, for pictures that were cropped or scaled without keeping the aspect ratio; else left out.

    Returns None where there is no readable marker.
    """
    gray = image.astype(np.float32)
    if gray.ndim == 3:
        gray = gray.mean(axis=2)
    height, width = gray.shape
    left, top, right, bottom = region or marker_region((width, height))
    cells = np.empty((ROWS, COLUMNS), np.float32)
    for row in range(ROWS):
        for column in range(COLUMNS):
            x0 = (left + (right - left) * (column + 0.25) / COLUMNS) * width
            x1 = (left + (right - left) * (column + 0.75) / COLUMNS) * width
            y0 = (top + (bottom - top) * (row + 0.25) / ROWS) * height
            y1 = (top + (bottom - top) * (row + 0.75) / ROWS) * height
            patch = gray[round(y0) : max(round(y1), round(y0) + 1), round(x0) : max(round(x1), round(x0) + 1)]
            cells[row, column] = patch.mean() if patch.size else 0.0
    low, high = float(cells.min()), float(cells.max())
    picture_range = float(gray.max() - gray.min())
    if high - low <= 0.4 * picture_range or picture_range == 0.0:
        return None
    levels = (cells - low) / (high - low)
    if float(np.abs(levels - 0.5).min()) < 0.2:
        return None
    value = int.from_bytes(np.packbits(levels.ravel() > 0.5).tobytes(), "big")
    message, check = value >> 8, value & 0xFF
    return Marker(camera=message & 0xFF, frame=message >> 8) if _crc8(message) == check else None


def paint(size: tuple[int, int], *, camera: int, frame: int) -> npt.NDArray[np.uint8]:
    """The picture of one frame before it is encoded: RGB, [height, width, 3]."""
    width, height = size
    texture = np.roll(_texture(width, height), (2 * frame + 7 * camera, 3 * frame), axis=(0, 1))
    picture = np.ascontiguousarray(np.roll(texture, camera, axis=2))
    message = (frame & 0xFFFF) << 8 | (camera & 0xFF)
    bits = np.unpackbits(np.frombuffer((message << 8 | _crc8(message)).to_bytes(4, "big"), np.uint8)).reshape(ROWS, COLUMNS)
    left, top, right, bottom = marker_region(size)
    columns = [round((left + (right - left) * n / COLUMNS) * width) for n in range(COLUMNS + 1)]
    rows = [round((top + (bottom - top) * n / ROWS) * height) for n in range(ROWS + 1)]
    for row in range(ROWS):
        for column in range(COLUMNS):
            picture[rows[row] : rows[row + 1], columns[column] : columns[column + 1]] = 255 * bits[row, column]
    return picture


def make_clip(
    path: Path,
    *,
    codec: str = "h264",
    size: tuple[int, int] = (320, 240),
    frames: int = 50,
    fps: Fraction | int = 25,
    gop: int = 25,
    b_frames: int = 0,
    camera: int = 0,
    first_frame: int = 0,
    pixel_format: str | None = None,
    matrix: str | None = None,
    full_range: bool | None = None,
    encoder_options: dict[str, str] | None = None,
) -> Path:
    """Encode a clip; the container follows from the suffix. Returns `path`.

    Closed GOPs of exactly `gop` frames where the codec has them. `.h264` and `.hevc` are elementary streams, without timestamps.

    Args:
        path: ends in .mp4, .mov, .mkv, .webm, .avi, .flv, .ts, .h264 or .hevc.
        codec: h264, hevc, vp8, vp9, av1, mpeg2video, mpeg4, mjpeg, or any encoder's own name.
        size: width and height in pixels. Below 100 pixels high the marker may not be readable.
        frames: how many.
        fps: frames per second.
        gop: frames from one key frame to the next.
        b_frames: consecutive B-frames (h264, hevc, mpeg2video, mpeg4).
        camera: number to be read from the pixels, 0 to 255.
        first_frame: number to be read from the first picture.
        pixel_format: FFmpeg's name; None takes yuv420p (mjpeg: yuvj420p).
        matrix: colour matrix used and tagged: bt709, bt470bg, smpte170m, bt2020nc, fcc, smpte240m; None uses BT.601 and leaves it untagged.
        full_range: range used and tagged; None uses limited and leaves it untagged (mjpeg is always full).
        encoder_options: added to, and stronger than, the options chosen here.
    """
    pixel_format = pixel_format or ("yuvj420p" if codec == "mjpeg" else "yuv420p")
    full = bool(full_range) or pixel_format.startswith("yuvj")
    options = _encoder_options(codec, gop=gop, b_frames=b_frames) | (encoder_options or {})
    _quiet_libraries()
    with _same_scheduling(), av.open(str(path), "w", format=RAW_FORMATS.get(path.suffix)) as container:
        stream = container.add_stream(ENCODERS.get(codec, codec), rate=Fraction(fps), options=options)
        assert isinstance(stream, av.VideoStream)
        context = stream.codec_context
        stream.width, stream.height = size
        stream.pix_fmt = pixel_format
        context.time_base = 1 / Fraction(fps)
        context.gop_size = gop
        context.max_b_frames = b_frames
        context.thread_count = 1
        if matrix is not None:
            context.colorspace = H273_MATRIX[matrix]
        if full_range is not None or full:
            context.color_range = int(ColorRange.JPEG if full else ColorRange.MPEG)
        for number in range(frames):
            picture = av.VideoFrame.from_ndarray(paint(size, camera=camera, frame=first_frame + number), format="rgb24")
            encoded = picture.reformat(
                format=pixel_format,
                dst_colorspace=H273_MATRIX[matrix] if matrix else Colorspace.ITU601,
                dst_color_range=ColorRange.JPEG if full else ColorRange.MPEG,
            )
            encoded.pts = number
            encoded.time_base = context.time_base
            container.mux(stream.encode(encoded))
        container.mux(stream.encode(None))
    return path


class ClipCache:
    """Clips by their parameters, each encoded once. The files are shared: read them, never change them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Path] = {}

    def __call__(self, suffix: str = ".mp4", **parameters: Any) -> Path:
        """The path of a clip; the parameters are those of `make_clip`."""
        key = repr((suffix, sorted(parameters.items())))
        if key not in self._made:
            name = f"{parameters.get('codec', 'h264')}_{len(self._made):03}{suffix}"
            self._made[key] = make_clip(self._folder / name, **parameters)
        return self._made[key]


def decoded(path: Path | str, **open_options: Any) -> Iterator[npt.NDArray[np.uint8]]:
    """The pictures of a file or address as RGB [height, width, 3], in display order, decoded by PyAV; options are those of `av.open`."""
    with av.open(str(path), **open_options) as container:
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="rgb24")


def read_markers(path: Path | str, **open_options: Any) -> list[Marker | None]:
    """The markers of all pictures of a clip, in display order."""
    return [read_marker(picture) for picture in decoded(path, **open_options)]


def _encoder_options(codec: str, *, gop: int, b_frames: int) -> dict[str, str]:
    match codec:
        case "h264":
            return {"preset": "ultrafast", "crf": "23", "sc_threshold": "0", "keyint_min": str(gop), "bf": str(b_frames), "b_strategy": "0"}
        case "hevc":
            parameters = f"log-level=none:pools=none:keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:bframes={b_frames}:b-adapt=0"
            return {"preset": "ultrafast", "crf": "26", "x265-params": parameters}
        case "vp8" | "vp9":
            return {"deadline": "realtime", "cpu-used": "8", "crf": "30", "b": "2M", "keyint_min": str(gop), "lag-in-frames": "0"}
        case "av1":
            return {"preset": "8", "crf": "30", "svtav1-params": "lp=1"}
        case "mpeg2video" | "mpeg4" | "mjpeg":
            return {"b": "3M", "qmax": "8"}
        case _:
            return {}


@contextlib.contextmanager
def _same_scheduling() -> Iterator[None]:
    """Undoes what SVT-AV1 does for root: it makes the calling thread a real-time one (SCHED_FIFO, 99), and so all that it starts later.

    Real-time threads that spin while they wait for each other, as OpenMP's do, leave nothing of the machine to anybody else.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def _quiet_libraries() -> None:
    """Warnings of the encoders (mjpeg's about its pixel format, say) must not reach a test's log capture."""
    av.logging.set_level(None)
    logging.getLogger("libav").setLevel(logging.CRITICAL)


@lru_cache(maxsize=4)
def _texture(width: int, height: int) -> npt.NDArray[np.uint8]:
    """A smooth, coloured, periodic pattern with some fine grain: it rolls without a seam."""
    x = np.linspace(0, 2 * np.pi, width, endpoint=False)[None, :]
    y = np.linspace(0, 2 * np.pi, height, endpoint=False)[:, None]
    waves = np.stack([np.sin(3 * x + 2 * y), np.sin(5 * x - y), np.cos(2 * x + 4 * y)], axis=2)
    grain = np.random.default_rng(0).normal(0, 3, (height, width, 1))
    return np.clip(128 + 72 * waves + grain, 24, 232).astype(np.uint8)


def _crc8(message: int) -> int:
    """CRC-8, polynomial 0x07, start value 0xA5, over 24 bits: never zero cells only, never ones only."""
    crc = 0xA5
    for byte in message.to_bytes(3, "big"):
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1) ^ 0x07 if crc & 0x80 else crc << 1
            crc &= 0xFF
    return crc
