"""Photographs as video frames, and the RGB picture that a frame stands for: what preprocessing is compared with."""

from __future__ import annotations

import importlib.resources
import io
from fractions import Fraction
from typing import Any

import av
import av.filter
import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame
from PIL import Image, ImageOps

from streamd.types import Matrix

Rgb = npt.NDArray[np.uint8]

_FILTER_NAMES = {Matrix.BT601: "bt601", Matrix.BT709: "bt709", Matrix.BT2020: "bt2020", Matrix.FCC: "fcc", Matrix.SMPTE240M: "smpte240m"}
H273_CODES = {Matrix.BT601: 5, Matrix.BT709: 1, Matrix.BT2020: 9, Matrix.FCC: 4, Matrix.SMPTE240M: 7}


def photograph(name: str, size: tuple[int, int]) -> Rgb:
    """A photograph that comes with scikit-image (`chelsea.png`, `coffee.png`, …), cropped and resized to (width, height)."""
    with importlib.resources.as_file(importlib.resources.files("skimage") / "data" / name) as path, Image.open(path) as image:
        return np.asarray(ImageOps.fit(image.convert("RGB"), size, Image.Resampling.BICUBIC))


def as_video(
    rgb: Rgb,
    *,
    matrix: Matrix,
    full_range: bool = False,
    tagged: bool = True,
    pixel_format: str = "yuv420p",
    encoder: str | None = "libx264",
) -> VideoFrame:
    """The picture as it comes out of a video that holds it with these colours; `encoder=None`: as it would go in."""
    colors = {"dst_colorspace": H273_CODES[matrix], "dst_color_range": 2 if full_range else 1}
    picture = VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format=pixel_format, **colors)
    if encoder is None:
        return picture
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as container:
        stream: Any = container.add_stream(encoder, rate=25, options={"crf": "18", "preset": "veryfast", "tune": "zerolatency"})
        stream.width, stream.height, stream.pix_fmt = picture.width, picture.height, pixel_format
        stream.codec_context.colorspace = H273_CODES[matrix] if tagged else 2
        stream.codec_context.color_range = colors["dst_color_range"] if tagged else 0
        if not tagged:
            picture.colorspace, picture.color_range = 2, 0
        container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    file.seek(0)
    with av.open(file) as container:
        return next(container.decode(video=0))


def careful_rgb(picture: VideoFrame, *, matrix: Matrix, full_range: bool) -> Rgb:
    """The picture as RGB [height, width, 3], by FFmpeg's swscale at its most exact.

    PyAV's `to_ndarray` takes swscale's fast way, which cuts fractions off: its pictures are 1 to 2 levels too dark.
    """
    graph = av.filter.Graph()
    time_base = Fraction(1, 25)
    colors = f"in_color_matrix={_FILTER_NAMES[matrix]}:in_range={'full' if full_range else 'limited'}:out_range=full"
    steps = [
        graph.add_buffer(width=picture.width, height=picture.height, format=picture.format, time_base=time_base),
        graph.add("scale", f"flags=bilinear+accurate_rnd+full_chroma_int+full_chroma_inp:{colors}"),
        graph.add("format", "pix_fmts=rgb24"),
        graph.add("buffersink"),
    ]
    graph.link_nodes(*steps).configure()
    picture.pts, picture.time_base = 0, time_base
    graph.push(picture)
    return graph.pull().to_ndarray()
