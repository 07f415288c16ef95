"""Clips to measure with, like those of a fixed camera: a still scene, grain, and things that move."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import av.error
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

from streamd.errors import StreamdError

_OBJECTS = 6
_GRAINS = 8
"""Patterns of grain, used in turn."""


@dataclass(frozen=True, slots=True)
class ClipSpec:
    """A clip of `seconds` at `fps`, one key frame each `gop` frames, about `kbit_s` kilobits a second."""

    codec: str = "h264"
    width: int = 1920
    height: int = 1080
    fps: int = 30
    seconds: int = 4
    gop: int = 60
    kbit_s: int = 4000
    b_frames: int = 0
    """In a row, between frames of other kinds."""

    @property
    def name(self) -> str:
        return f"{self.codec}-{self.width}x{self.height}-{self.fps}fps-{self.kbit_s}k-{self.seconds}s-gop{self.gop}.mp4"


def make(spec: ClipSpec, folder: Path) -> Path:
    """The clip in `folder`; encoded if it is not there yet."""
    path = folder / spec.name
    if not path.exists():
        write(path, _pictures(spec), spec, {"preset": "veryfast"}, bit_rate=spec.kbit_s * 1000)
    return path


def write(path: Path, pictures: Iterable[av.VideoFrame], spec: ClipSpec, options: dict[str, str], *, bit_rate: int | None = None) -> None:
    """Encode `pictures` as `spec` says, whatever its `seconds`. What stands at `path` is always whole. `options` are the encoder's."""
    encoder = {"h264": "libx264", "hevc": "libx265"}[spec.codec]
    options = {"g": str(spec.gop), "bf": str(spec.b_frames), "keyint_min": str(spec.gop), "sc_threshold": "0", **options}
    if spec.codec == "hevc":
        gop = f"keyint={spec.gop}:min-keyint={spec.gop}:bframes={spec.b_frames}:scenecut=0:open-gop=0"
        options |= {"x265-params": f"{gop}:log-level=error"}
    unfinished = path.with_suffix(".part")
    with av.open(str(unfinished), "w", format={".mp4": "mp4", ".ts": "mpegts"}[path.suffix]) as container:
        stream = container.add_stream(encoder, rate=spec.fps, options=options)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = spec.width, spec.height, "yuv420p"
        if bit_rate is not None:
            stream.bit_rate = bit_rate
        stream.codec_context.time_base = Fraction(1, spec.fps)
        for picture in pictures:
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    unfinished.rename(path)


def repeated(clip: Path, folder: Path, *, frames: int) -> Path:
    """A file in `folder` that plays the clip again and again, for at least `frames` frames; the clip itself where it is as long.

    Raises StreamdError when it cannot be read.
    """
    try:
        with av.open(str(clip)) as source:
            shown = source.streams.video[0]
            packets = [packet for packet in source.demux(shown) if packet.size and packet.pts is not None and packet.dts is not None]
            if len(packets) >= frames or not packets:
                return clip
            time_base = Fraction(shown.time_base or 1)
            stamps = [(int(packet.pts or 0), int(packet.dts or 0)) for packet in packets]
            ticks = round((max(pts for pts, _ in stamps) - min(pts for pts, _ in stamps)) * len(packets) / max(len(packets) - 1, 1))
            path = folder / f"{clip.stem}-{frames}{clip.suffix}"
            with av.open(str(path), "w") as target:
                stream = target.add_stream_from_template(shown)
                for number in range(-(-frames // len(packets))):
                    for packet, (pts, dts) in zip(packets, stamps, strict=True):
                        packet.pts, packet.dts, packet.time_base = pts + number * ticks, dts + number * ticks, time_base
                        packet.stream = stream
                        target.mux(packet)
            return path
    except av.error.FFmpegError as error:
        raise StreamdError(f"{clip} cannot be read: {error.strerror}") from None


def marked(spec: ClipSpec, mark: Callable[[NDArray[np.uint8]], None], path: Path) -> None:
    """A clip of one still picture, a scene that `mark` wrote into: luma [height, width], limited range. Fast to make."""
    rng = np.random.default_rng(1)
    luma = _texture(spec.height, spec.width, rng)
    mark(luma)
    picture = np.concatenate([luma, np.full((spec.height // 2, spec.width), 128, np.uint8)])
    frames = spec.fps * spec.seconds
    write(
        path, (av.VideoFrame.from_ndarray(picture, format="yuv420p") for _ in range(frames)), spec, {"preset": "ultrafast", "threads": "1"}
    )


def _pictures(spec: ClipSpec) -> Iterator[av.VideoFrame]:
    """A fixed camera's view: a still, textured scene with some grain, and objects that cross it, a twelfth of the picture all together."""
    rng = np.random.default_rng(1)
    scene, things = _texture(spec.height, spec.width, rng), _texture(spec.height, spec.width, rng)
    grain = [rng.integers(0, 4, scene.shape, dtype=np.uint8) for _ in range(_GRAINS)]
    height, width = spec.height // 6, spec.width // 12
    paths = [
        (int(rng.integers(0, spec.height - height)), int(rng.integers(0, spec.width)), int(rng.integers(2, 12))) for _ in range(_OBJECTS)
    ]
    chroma = np.stack([scene[::2, ::2] // 4 + 96, scene[::2, 1::2] // 4 + 96], axis=2).reshape(spec.height // 2, spec.width)
    for number in range(spec.fps * spec.seconds):
        luma = scene.copy()
        for top, start, speed in paths:
            left = (start + speed * number) % (spec.width - width)
            luma[top : top + height, left : left + width] = things[top : top + height, :width]
        luma += grain[number % _GRAINS]
        yield av.VideoFrame.from_ndarray(np.concatenate([luma, chroma]), format="nv12").reformat(format="yuv420p")


def _texture(height: int, width: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Smooth noise of several scales, the coarse ones strongest, as in photographs; levels 16 to 235."""
    levels = np.zeros((height, width), np.float32)
    for step in (2, 4, 8, 16, 32, 64, 128):
        coarse = rng.standard_normal((height // step + 2, width // step + 2)).astype(np.float32)
        (rows, down), (columns, right) = (np.divmod(np.arange(size) / step, 1) for size in (height, width))
        rows, columns, down = rows.astype(int), columns.astype(int), down[:, None].astype(np.float32)
        upper, lower = coarse[rows], coarse[rows + 1]
        between = upper + (lower - upper) * down
        levels += (between[:, columns] + (between[:, columns + 1] - between[:, columns]) * right.astype(np.float32)) * step**0.5
    pixels: NDArray[np.uint8] = np.clip((levels - levels.mean()) / levels.std() * 40 + 120, 16, 230).astype(np.uint8)
    return pixels
