"""Clips out of photographs: the view pans and zooms slowly over a picture and comes back to where it began, so that a loop has no seam.

The view never leaves the middle of the picture far enough for its label to become wrong; a test looks at every clip through the model.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import av.logging
from av.filter import Graph
from av.video.frame import PictureType, VideoFrame
from av.video.stream import VideoStream

SIZE = (640, 360)
FPS = 25
SECONDS = 8

_UPSCALE = 3
"""Panning moves by whole pixels of the source: of one this much larger than the photograph, they are too small to be seen."""
_GOP = 2 * FPS


@dataclass(frozen=True, slots=True)
class Encoding:
    encoder: str
    options: dict[str, str]


H264 = Encoding("libx264", {"preset": "ultrafast", "crf": "23", "bf": "0", "sc_threshold": "0"})
HEVC = Encoding(
    "libx265", {"preset": "ultrafast", "crf": "26", "x265-params": f"log-level=none:keyint={_GOP}:bframes=0:scenecut=0:pools=none"}
)


def make_clip(photograph: Path, clip: Path, *, encoding: Encoding, stop: threading.Event) -> None:
    """Write the clip, or a part of it where `stop` is set meanwhile. The lock of the interpreter is free nearly all of the time."""
    av.logging.set_level(None)  # the encoders write to standard error
    with av.open(str(photograph)) as container:
        picture = next(container.decode(video=0))
    graph = _pan_and_zoom(picture)
    rate = Fraction(FPS)
    with av.open(str(clip), "w") as container:
        stream = container.add_stream(encoding.encoder, rate=rate, options=dict(encoding.options))
        assert isinstance(stream, VideoStream)
        stream.width, stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.time_base = 1 / rate
        context.gop_size = _GOP
        context.thread_count = 1
        for number in range(FPS * SECONDS):
            if stop.is_set():
                break
            frame = graph.vpull()
            assert isinstance(frame, VideoFrame)
            frame.pts, frame.time_base, frame.pict_type = number, context.time_base, PictureType.NONE
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _pan_and_zoom(picture: VideoFrame) -> Graph:
    """A filter graph that was given the picture, and gives the clip's frames.

    FFmpeg's zoompan, with `on` the number of the frame: zoom swings between 1.1 and 1.4 times, and the middle of the view draws a figure of
    eight within the inner seven tenths of what the zoom leaves.
    """
    width, height = SIZE
    frames = FPS * SECONDS
    turn = f"2*PI*on/{frames}"
    zoom = f"1.25-0.15*cos({turn})"
    x = f"(iw-iw/zoom)*(0.5+0.35*sin({turn}))"
    y = f"(ih-ih/zoom)*(0.5+0.35*sin(2*{turn}))"
    graph = Graph()
    time_base = Fraction(1, FPS)
    source = graph.add_buffer(width=picture.width, height=picture.height, format=picture.format, time_base=time_base)
    filters = [
        graph.add("crop", f"w=min(iw\\,ih*{width}/{height}):h=min(ih\\,iw*{height}/{width})"),
        graph.add("scale", f"w=iw*{_UPSCALE}:h=ih*{_UPSCALE}:flags=bicubic"),
        graph.add("zoompan", f"z='{zoom}':x='{x}':y='{y}':d={frames}:s={width}x{height}:fps={FPS}"),
        graph.add("format", "yuv420p"),
        graph.add("buffersink"),
    ]
    for before, after in zip([source, *filters], filters, strict=False):
        before.link_to(after)
    graph.configure()
    picture.pts, picture.time_base = 0, time_base
    graph.vpush(picture)
    return graph
