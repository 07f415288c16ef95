"""Preprocessing with plain torch, the same code on the CPU and on a GPU: a decoded frame becomes one normalised model input.

Resizing, cropping and rotating are linear, and so is the way from Y'CbCr to R'G'B'. So each plane is resized on its own, straight to the
small size, by two matrix products; only then the colours are converted, rounded to the 8 bits that models learned from, and normalised.
It never waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from streamd.color import to_rgb
from streamd.preprocess.spec import Geometry, InputSpec
from streamd.preprocess.weights import Weights, resampling_weights
from streamd.types import Frame, Matrix

_CPU_BLOCK = 16
"""Output rows or columns that share one matrix product on the CPU. The weights are a narrow band around the diagonal, so that short
blocks skip nearly all of the zeros. A GPU is faster with one product for all."""
_LEVELS = 255
_PLANS = 128
"""Kinds of pictures that a preprocessor keeps weights for; a 1080p one takes 3 MB on a GPU, 0.5 MB on the CPU."""


class _Kind(NamedTuple):
    """All that the weights depend on."""

    luma: tuple[int, ...]
    chroma: tuple[int, ...] | None
    bit_depth: int
    shift: int
    matrix: Matrix
    full_range: bool
    rotation_deg: int
    stream: int
    """CUDA stream that the weights are used on, 0 on the CPU. Each has its own: memory that is freed is at once free for its own stream,
    while another stream might still be reading it."""


class _Block(NamedTuple):
    """Outputs `dst` of an axis are its samples `src` times `weights`."""

    dst: slice
    src: slice
    weights: Tensor


class _Resampler(NamedTuple):
    """Of one plane. `rows` and `cols` are the stored picture's; weights of `cols` are transposed, as they stand on the right."""

    rows: list[_Block]
    cols: list[_Block]
    left: int
    right: int
    """Columns [left, right) of the plane are all that the input depends on."""


@dataclass(frozen=True, slots=True)
class _Plan:
    geometry: Geometry
    luma: _Resampler
    chroma: _Resampler | None
    color: Tensor
    """[3, planes]: from code values to R'G'B' in levels, 0..255."""
    offset: Tensor
    """[3, 1]."""


class TorchPreprocessor:
    """Writes frames as the model described by `spec` wants them. `device` is where both are.

    Weights for a new kind of picture are computed on its first frame; that takes some 20 ms and, on a GPU, waits for their copy. All other
    work is queued on the current CUDA stream. Any number of threads may use one preprocessor.
    """

    def __init__(self, spec: InputSpec, device: torch.device | str) -> None:
        self._spec = spec
        self._device = torch.device(device)
        self._block = _CPU_BLOCK if self._device.type == "cpu" else max(spec.crop)
        mean, std = np.array(spec.mean), np.array(spec.std)
        # Normalised: level * gain + black.
        self._gain = self._to_device(1 / (_LEVELS * std)).view(3, 1, 1)
        self._black = self._to_device(-mean / std).view(3, 1, 1)
        self._plan = lru_cache(maxsize=_PLANS)(self._make_plan)

    def __call__(self, frame: Frame, out: Tensor) -> None:
        """Write `frame` into `out` [3, height, width] of the spec's crop, any floating dtype and strides, on this preprocessor's device.

        Raises ValueError when `out` has another shape, or the frame's planes do not go together.
        """
        if tuple(out.shape) != (3, *self._spec.crop):
            raise ValueError(f"out has shape {tuple(out.shape)}, but the model takes {(3, *self._spec.crop)}")
        plan = self._plan(self._kind(frame))
        place = plan.geometry
        with torch.inference_mode():
            planes = torch.empty(plan.color.shape[1], place.rows.kept, place.cols.kept, device=self._device)
            self._resample(frame.y, plan.luma, planes[0])
            if plan.chroma is not None and frame.u is not None and frame.v is not None:
                self._resample(frame.u, plan.chroma, planes[1])
                self._resample(frame.v, plan.chroma, planes[2])
            rgb = torch.addmm(plan.offset, plan.color, planes.flatten(1)).view(3, *planes.shape[1:])
            # Rounding halves the distance to the reference, and the classes of smooth pictures (skies, walls) depend on it.
            rgb.clamp_(0, _LEVELS).round_()
            inside = out[:, place.top : place.top + place.height, place.left : place.left + place.width]
            if inside.shape != out.shape:
                out.copy_(self._black.expand_as(out))
            torch.addcmul(self._black, rgb.transpose(1, 2) if place.is_transposed else rgb, self._gain, out=inside)

    def many(self, frames: Sequence[Frame], outs: Sequence[Tensor]) -> None:
        """Each frame into its own output, one after the other."""
        for frame, out in zip(frames, outs, strict=True):
            self(frame, out)

    def _kind(self, frame: Frame) -> _Kind:
        return _Kind(
            luma=tuple(frame.y.shape),
            chroma=None if frame.u is None else tuple(frame.u.shape),
            bit_depth=frame.bit_depth,
            shift=frame.shift,
            matrix=frame.matrix,
            full_range=frame.full_range,
            rotation_deg=frame.rotation_deg,
            stream=torch.cuda.current_stream(self._device).cuda_stream if self._device.type == "cuda" else 0,
        )

    def _resample(self, plane: Tensor, resampler: _Resampler, out: Tensor) -> None:
        """Write `plane`, resized and cropped but with its code values, into `out` [rows, columns] float32."""
        left, right = resampler.left, resampler.right
        tall = torch.empty(out.shape[0], right - left, device=self._device)
        for block in resampler.rows:
            # Converted a block at a time: 0.1 to 0.4 MB stay in the core's cache, where a whole float plane would go through memory twice.
            samples = plane[block.src, left:right].to(torch.float32)
            torch.mm(block.weights, samples, out=tall[block.dst])
        for block in resampler.cols:
            torch.mm(tall[:, block.src.start - left : block.src.stop - left], block.weights, out=out[:, block.dst])

    def _make_plan(self, kind: _Kind) -> _Plan:
        geometry = self._spec.geometry(kind.luma[0], kind.luma[1], rotation_deg=kind.rotation_deg)
        rgb = to_rgb(kind.matrix, full_range=kind.full_range, bit_depth=kind.bit_depth, shift=kind.shift)
        color, offset = np.array(rgb.matrix), np.array(rgb.offset)
        if kind.chroma is None:
            neutral = 2.0 ** (kind.bit_depth - 1 + kind.shift)
            color, offset = color[:, :1], offset + color[:, 1:].sum(axis=1) * neutral
        return _Plan(
            geometry=geometry,
            luma=self._resampler(geometry, kind.luma),
            chroma=None if kind.chroma is None else self._resampler(geometry, kind.chroma),
            color=self._to_device(color * _LEVELS),
            offset=self._to_device(offset * _LEVELS).view(3, 1),
        )

    def _resampler(self, geometry: Geometry, plane: Sequence[int]) -> _Resampler:
        rows = resampling_weights(geometry.rows, self._spec.interpolation, plane_size=plane[0])
        cols = resampling_weights(geometry.cols, self._spec.interpolation, plane_size=plane[1])
        used = _used_columns(cols)
        return _Resampler(
            rows=[_Block(dst, src, self._to_device(part)) for dst, src, part in _blocks(rows, self._block)],
            cols=[_Block(dst, src, self._to_device(part.T)) for dst, src, part in _blocks(cols, self._block)],
            left=used.start,
            right=used.stop,
        )

    def _to_device(self, values: Weights) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(self._device)


def _blocks(weights: Weights, size: int) -> Iterator[tuple[slice, slice, Weights]]:
    """`weights` in blocks of `size` rows, each cut to the columns that are not zero: (rows, columns, values)."""
    for start in range(0, len(weights), size):
        rows = weights[start : start + size]
        columns = _used_columns(rows)
        yield slice(start, start + len(rows)), columns, rows[:, columns]


def _used_columns(weights: Weights) -> slice:
    used = np.flatnonzero(weights.any(axis=0))
    return slice(int(used[0]), int(used[-1]) + 1)
