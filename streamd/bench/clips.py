"""Clips to measure with: made once, moving everywhere like a camera in the street, so that the decoder has work to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream


@dataclass(frozen=True, slots=True)
class ClipSpec:
    """A clip of `seconds` at `fps`, one key frame each `gop` frames, no B-frames, about `kbit_s` kilobits a second."""

    codec: str = "h264"
    width: int = 1920
    height: int = 1080
    fps: int = 30
    seconds: int = 4
    gop: int = 60
    kbit_s: int = 4000

    @property
    def name(self) -> str:
        return f"{self.codec}-{self.width}x{self.height}-{self.fps}fps-{self.kbit_s}k-{self.seconds}s-gop{self.gop}.mp4"


def make(spec: ClipSpec, folder: Path) -> Path:
    """The clip in `folder`; encoded if it is not there yet."""
    path = folder / spec.name
    if path.exists():
        return path
    encoder = {"h264": "libx264", "hevc": "libx265"}[spec.codec]
    options = {"preset": "veryfast", "g": str(spec.gop), "bf": "0", "keyint_min": str(spec.gop), "sc_threshold": "0"}
    if spec.codec == "hevc":
        options |= {"x265-params": f"keyint={spec.gop}:min-keyint={spec.gop}:bframes=0:scenecut=0:log-level=error"}
    unfinished = path.with_suffix(".part")
    with av.open(str(unfinished), "w", format="mp4") as container:
        stream = container.add_stream(encoder, rate=spec.fps, options=options)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = spec.width, spec.height, "yuv420p"
        stream.bit_rate = spec.kbit_s * 1000
        stream.codec_context.time_base = Fraction(1, spec.fps)
        for picture in _pictures(spec):
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    unfinished.rename(path)
    return path


def _pictures(spec: ClipSpec) -> Iterator[av.VideoFrame]:
    """A textured scene that pans, with noise that never repeats."""
    rng = np.random.default_rng(1)
    rows, columns = spec.height + 64, spec.width + 64
    coarse = rng.integers(0, 256, (rows // 16 + 1, columns // 16 + 1), dtype=np.uint8)
    scene = np.kron(coarse, np.ones((16, 16), dtype=np.uint8))[:rows, :columns] // 2 + 64
    for number in range(spec.fps * spec.seconds):
        dx, dy = number % 64, (number // 2) % 64
        luma = scene[dy : dy + spec.height, dx : dx + spec.width] + rng.integers(0, 8, (spec.height, spec.width), dtype=np.uint8)
        chroma = np.full((spec.height // 2, spec.width), 118 + number % 20, dtype=np.uint8)
        yield av.VideoFrame.from_ndarray(np.concatenate([luma, chroma]), format="nv12").reformat(format="yuv420p")
