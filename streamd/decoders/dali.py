"""A whole file through NVIDIA DALI: it reads, decodes on NVDEC, resizes, converts, crops and normalises on the GPU, and gives samples that
a model can take. The only module that imports it, and only when asked to: it comes with the extra `dali`, and is large.

DALI's reader is asked for Y'CbCr, since its own conversion takes all video as BT.601. The pictures are then resized, and only at the
model's size become R'G'B', by the matrix that goes with the stream, and are rounded to 8 bits: as our own preprocessing does it. On a CPU,
where tests run it, DALI's reader gives R'G'B' only.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from streamd import color
from streamd.decoders.nvdec import sampling
from streamd.errors import DecodeError, DecoderUnavailable
from streamd.types import StreamInfo

FRAMES_PER_RUN = 16
"""That many frames are decoded for one run of the pipeline. At 1080p they take 100 MB of the GPU, and DALI keeps a few runs ahead."""
_CODECS = {"h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg"}
_AHEAD = 2
"""Runs that are under way while one is taken."""
_LEVELS = 255.0
_NOTHING_IN_IT = "number of input samples: 0"
_RGB = color.ToRgb(((1 / _LEVELS, 0.0, 0.0), (0.0, 1 / _LEVELS, 0.0), (0.0, 0.0, 1 / _LEVELS)), (0.0, 0.0, 0.0))
"""Of a reader that gives R'G'B' already."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is made of each picture: resized, then a part of it, normalised. Sizes are in pixels."""

    resized: tuple[int, int]
    """Height, width."""
    origin: tuple[int, int]
    """Top and left of the part, in the resized picture. What lies outside of it, negative numbers say, is black."""
    size: tuple[int, int]
    """Height and width of the part."""
    interpolation: str
    """`bilinear` or `bicubic`; antialiased."""
    mean: tuple[float, float, float]
    """R, G, B on the scale 0..1, as `std`."""
    std: tuple[float, float, float]
    dtype: torch.dtype
    """float16 or float32."""


@dataclass(frozen=True, slots=True)
class Run:
    """Frames that follow each other, in display order, ready for a model."""

    samples: Tensor
    """[frames, height, width, 3], over DALI's memory: work that reads it must have ended before it is let go."""
    frames: tuple[int, ...]
    """Their numbers in the file, from 0."""
    times_s: tuple[float, ...]
    """When each is shown, in seconds after the first frame of the file."""
    received_ns: int
    captured_ns: int


class _Library(NamedTuple):
    fn: Any
    types: Any
    pipeline: Any


@functools.cache
def _library() -> _Library:
    """DALI, or DecoderUnavailable with what is missing."""
    try:
        from nvidia.dali import Pipeline, fn, types  # noqa: PLC0415
    except ImportError:
        raise DecoderUnavailable("NVIDIA DALI is not installed; pip install 'streamd[dali]', or take another `decoder`") from None
    return _Library(fn, types, Pipeline)


def refusal(info: StreamInfo, device: torch.device) -> str | None:
    """Why DALI cannot take such a file on `device`; None when nothing speaks against it. Raises DecoderUnavailable without the library."""
    if device.type != "cuda":
        return "decoder: dali needs a GPU, and the engine runs on the CPU"
    _library()
    chroma, _ = sampling(info.pixel_format)
    if info.codec not in _CODECS or chroma != "420":
        return f"DALI does not take {info.codec} with pixels of {info.pixel_format}; `decoder: auto` does"
    if info.rotation_deg:
        return f"DALI does not turn pictures, and this file is to be turned by {info.rotation_deg} degrees; `decoder: auto` does"
    return None


def normalised(ycbcr: Any, recipe: Recipe, to_rgb: color.ToRgb) -> Any:
    """The part of a DALI pipeline that makes samples [frames, height, width, 3] of pictures [frames, height, width, 3], uint8.

    `to_rgb` leads from their code values to R'G'B' in 0..1.
    """
    fn, types, _ = _library()
    resized = fn.resize(
        ycbcr,
        size=recipe.resized,
        antialias=True,
        interp_type={"bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC}[recipe.interpolation],
        dtype=types.FLOAT,
    )
    levels = fn.coord_transform(
        resized, M=[_LEVELS * share for row in to_rgb.matrix for share in row], T=[_LEVELS * share for share in to_rgb.offset]
    )
    rgb = fn.cast(levels, dtype=types.UINT8)  # clamps, and rounds to the 8 bits that models learned from
    part = fn.slice(rgb, start=recipe.origin, shape=recipe.size, axis_names="HW", out_of_bounds_policy="pad", fill_values=0)
    return fn.crop_mirror_normalize(
        part,
        dtype={torch.float16: types.FLOAT16, torch.float32: types.FLOAT}[recipe.dtype],
        output_layout="FHWC",
        mean=[_LEVELS * value for value in recipe.mean],
        std=[_LEVELS * value for value in recipe.std],
    )


class DaliReader:
    """One file, from its first frame to its last. Used by one thread at a time."""

    def __init__(self, path: Path, info: StreamInfo, recipe: Recipe, *, device: torch.device, frames: int = FRAMES_PER_RUN) -> None:
        """`frames` at most are in a run. Raises DecoderUnavailable when the library is missing."""
        library = _library()
        self._path = path
        on_gpu = device.type == "cuda"
        to_rgb = _of_stream(info) if on_gpu else _RGB
        self._pipeline: Any = library.pipeline(
            batch_size=1, num_threads=1, device_id=(device.index or 0) if on_gpu else None, prefetch_queue_depth=_AHEAD
        )
        with self._pipeline:
            pictures, numbers, times = library.fn.experimental.readers.video(
                name="reader",
                device="gpu" if on_gpu else "cpu",
                filenames=[str(path)],
                sequence_length=frames,
                pad_mode="constant",  # else the frames after the last full sequence are left out
                image_type=library.types.YCbCr if on_gpu else library.types.RGB,
                enable_frame_num="sequence",
                enable_timestamps=True,
                lazy_init=True,  # the index of the file is made without Python's lock
            )
            self._pipeline.set_outputs(normalised(pictures, recipe, to_rgb), numbers.cpu(), times.cpu())

    def runs(self) -> Iterator[Run]:
        """All frames, once. The next run is under way while one is used. Before the first run the whole file is read, for an index.

        Raises DecoderUnavailable when DALI cannot take the file, DecodeError when it gives up later.
        """
        pipeline, path = self._pipeline, self._path
        try:
            pipeline.schedule_run()  # as many as are to be under way
            run = self._run(*pipeline.outputs())
            count = int(pipeline.reader_meta("reader")["epoch_size"])
        except RuntimeError as error:
            raise DecoderUnavailable(f"DALI cannot take {path}: {_reason(error)}") from None
        try:
            for number in range(1, count):
                if number + _AHEAD <= count:  # none for the beginning of another round
                    pipeline.schedule_run()
                yield run
                run = self._run(*pipeline.outputs())
        except RuntimeError as error:
            raise DecodeError(f"DALI cannot decode {path}: {_reason(error)}") from None
        yield run

    @staticmethod
    def _run(samples: Any, numbers: Any, times: Any) -> Run:
        """`outputs` waited until the GPU had made them."""
        frames: Sequence[int] = from_dlpack(numbers.as_tensor())[0].tolist()
        count = sum(frame >= 0 for frame in frames)  # the end of the last run is padding
        return Run(
            samples=from_dlpack(samples.as_tensor())[0, :count],
            frames=tuple(frames[:count]),
            times_s=tuple(from_dlpack(times.as_tensor())[0, :count].tolist()),
            received_ns=time.monotonic_ns(),
            captured_ns=time.time_ns(),
        )

    def close(self) -> None:
        """End DALI's threads, and free its decoder. What it gave stays valid. May be called any number of times."""
        self._pipeline = None


def _of_stream(info: StreamInfo) -> color.ToRgb:
    """From what DALI's reader gives on a GPU: 8 bits, whatever the stream has."""
    matrix, full_range = color.resolve(info.color, height=info.height, pixel_format=info.pixel_format)
    return color.to_rgb(matrix, full_range=full_range, bit_depth=8, shift=0)


def _reason(error: Exception) -> str:
    """The sentence in DALI's message, which holds the definition of the pipeline and the place in DALI's source too."""
    if _NOTHING_IN_IT in str(error):
        return "it finds no video there that it can decode"
    told = str(error).rsplit("encountered:", maxsplit=1)[-1].strip()
    return told.partition("\n")[0].rpartition(" failed: ")[2].strip().rstrip(".")
