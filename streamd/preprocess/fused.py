"""Preprocessing on the GPU with one kernel (fused.cu): from the decoder's surface to the model's input, same results as torch_ops.py.

It takes NV12 and P016 surfaces; frames of other layouts go through TorchPreprocessor, which is its reference too.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from streamd.color import to_rgb
from streamd.preprocess.nvrtc import Kernel, argument_array, compile_source, shared_memory_limit
from streamd.preprocess.spec import InputSpec
from streamd.preprocess.tables import TILE, column_table, row_table
from streamd.preprocess.torch_ops import TorchPreprocessor
from streamd.preprocess.weights import resampling_weights
from streamd.types import Frame, Matrix

_raw_stream = torch._C._cuda_getCurrentRawStream  # noqa: SLF001 - what torch's own compiler calls; the public way costs 3 us a frame
FRAMES = 32
"""Frames that one launch takes at most, as in fused.cu."""
_PLANS = 128
_LEVELS = 255


class _Rows(ctypes.Structure):
    _fields_ = (("first", ctypes.c_void_p), ("weights", ctypes.c_void_p), ("span", ctypes.c_int), ("count", ctypes.c_int))


class _Columns(ctypes.Structure):
    _fields_ = (("first", ctypes.c_void_p), ("weights", ctypes.c_void_p), ("taps", ctypes.c_int), ("count", ctypes.c_int))


class _Plane(ctypes.Structure):
    _fields_ = (("rows", _Rows), ("columns", _Columns), ("left", ctypes.c_int), ("right", ctypes.c_int))


class _PlanData(ctypes.Structure):
    _fields_ = (
        ("luma", _Plane),
        ("chroma", _Plane),
        ("color", ctypes.c_float * 9),
        ("offset", ctypes.c_float * 3),
        ("gain", ctypes.c_float * 3),
        ("black", ctypes.c_float * 3),
    )


class _Surface(ctypes.Structure):
    _fields_ = (
        ("luma", ctypes.c_void_p),
        ("chroma", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("pitch", ctypes.c_int),
        ("unused", ctypes.c_int),
    )


class _Surfaces(ctypes.Structure):
    _fields_ = (("frames", _Surface * FRAMES),)


class _Kind(NamedTuple):
    """All that a plan depends on."""

    height: int
    width: int
    bit_depth: int
    shift: int
    matrix: Matrix
    full_range: bool
    rotation_deg: int


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    data: Tensor
    """The `Plan` of fused.cu, in device memory."""
    tables: list[Tensor]
    """What it points to."""
    tiles: int
    threads: int
    shared_bytes: int
    is_transposed: bool
    first_pixel: tuple[int, int]
    covers_all: bool


class _Launch(NamedTuple):
    """What the frames of one launch have in common."""

    plan: _Plan
    sample_bytes: int
    output_bytes: int
    strides: tuple[int, ...]
    """Of the output: channels, rows, columns."""


class _Scratch(threading.local):
    """The kernel's arguments, of one thread."""

    def __init__(self) -> None:
        surfaces = _Surfaces()
        self.frames = list(surfaces.frames)
        self.plan = ctypes.c_void_p()
        self.strides = (ctypes.c_int(), ctypes.c_int(), ctypes.c_int())
        self.array = argument_array([surfaces, self.plan, *self.strides])
        self.address = ctypes.addressof(self.array)


class FusedPreprocessor:
    """See TorchPreprocessor: the same contract and, within rounding, the same results. Any number of threads may use one."""

    def __init__(self, spec: InputSpec, device: torch.device) -> None:
        self._spec = spec
        self._device = device
        self._shape = (3, *spec.crop)
        self._fallback = TorchPreprocessor(spec, device)
        self._shared_limit = shared_memory_limit(device.index or 0)
        self._kernel = lru_cache(self._load_kernel)
        self._plan = lru_cache(maxsize=_PLANS)(self._make_plan)
        self._scratch = _Scratch()
        self._black = torch.tensor([-mean / std for mean, std in zip(spec.mean, spec.std, strict=True)], device=device).view(3, 1, 1)

    def __call__(self, frame: Frame, out: Tensor) -> None:
        """Write `frame` into `out` [3, height, width], fp16 or fp32, any strides, queued on the current CUDA stream.

        Raises ValueError when `out` has another shape.
        """
        self.many([frame], [out])

    def many(self, frames: Sequence[Frame], outs: Sequence[Tensor]) -> None:
        """Each frame into its own output; frames of one kind share a launch, which costs the host and the GPU little more than one."""
        together: dict[_Launch, list[tuple[Frame, Tensor]]] = {}
        for frame, out in zip(frames, outs, strict=True):
            launch = self._launch_of(frame, out)
            if launch is None:
                self._fallback(frame, out)
            else:
                together.setdefault(launch, []).append((frame, out))
        for launch, pairs in together.items():
            for begin in range(0, len(pairs), FRAMES):
                self._run(launch, pairs[begin : begin + FRAMES])

    def _launch_of(self, frame: Frame, out: Tensor) -> _Launch | None:
        """None: the kernel does not take such a frame."""
        y, u, v = frame.y, frame.u, frame.v
        if u is None or v is None or not _are_pairs(y, u, v) or out.shape != self._shape:
            return None
        plan = self._plan(_Kind(y.shape[0], y.shape[1], frame.bit_depth, frame.shift, frame.matrix, frame.full_range, frame.rotation_deg))
        return None if plan is None else _Launch(plan, y.element_size(), out.element_size(), out.stride())

    def _run(self, launch: _Launch, pairs: Sequence[tuple[Frame, Tensor]]) -> None:
        plan, sample_bytes, output_bytes, (channel_stride, row_stride, column_stride) = launch
        top, left = plan.first_pixel
        first_byte = (top * row_stride + left * column_stride) * output_bytes
        scratch = self._scratch
        for surface, (frame, out) in zip(scratch.frames, pairs, strict=False):
            if not plan.covers_all:
                out.copy_(self._black.expand_as(out))
            y, u = frame.y, frame.u
            assert u is not None
            surface.luma, surface.chroma, surface.pitch, surface.out = y.data_ptr(), u.data_ptr(), y.stride(0), out.data_ptr() + first_byte
        scratch.plan.value = plan.data.data_ptr()
        if plan.is_transposed:
            row_stride, column_stride = column_stride, row_stride
        scratch.strides[0].value, scratch.strides[1].value, scratch.strides[2].value = row_stride, column_stride, channel_stride
        self._kernel(sample_bytes, output_bytes).launch(
            (plan.tiles, len(pairs)),
            plan.threads,
            shared_bytes=plan.shared_bytes,
            stream=_raw_stream(self._device.index or 0),
            arguments=scratch.address,
        )

    def _load_kernel(self, sample_bytes: int, output_bytes: int) -> Kernel:
        major, minor = torch.cuda.get_device_capability(self._device)
        cubin = compile_kernel(f"sm_{major}{minor}", sample_bytes=sample_bytes, output_bytes=output_bytes)
        return Kernel(cubin, "preprocess", device=self._device, shared_bytes=self._shared_limit)

    def _make_plan(self, kind: _Kind) -> _Plan | None:
        """The plan for a kind of frame; None when its rows do not fit into a block's shared memory."""
        geometry = self._spec.geometry(kind.height, kind.width, rotation_deg=kind.rotation_deg)
        tables: list[Tensor] = []
        planes, shared_bytes = [], 0
        for step in (1, 2):  # luma; chroma, whose samples come in pairs
            rows = row_table(resampling_weights(geometry.rows, self._spec.interpolation, plane_size=-(-kind.height // step)))
            columns = column_table(resampling_weights(geometry.cols, self._spec.interpolation, plane_size=-(-kind.width // step)))
            tables += [torch.from_numpy(table).to(self._device) for table in (*rows, *columns)]
            pointers = [table.data_ptr() for table in tables[-4:]]
            left = int(columns.first.min()) * step // 4 * 4
            right = int(columns.first.max() + len(columns.weights)) * step
            planes.append(
                _Plane(
                    _Rows(pointers[0], pointers[1], rows.weights.shape[1], geometry.rows.kept),
                    _Columns(pointers[2], pointers[3], len(columns.weights), geometry.cols.kept),
                    left,
                    right,
                )
            )
            shared_bytes += TILE * ((right - left + 3) // 4 * 4) * 4
        if shared_bytes > self._shared_limit:
            return None
        rgb = to_rgb(kind.matrix, full_range=kind.full_range, bit_depth=kind.bit_depth, shift=kind.shift)
        mean, std = np.array(self._spec.mean), np.array(self._spec.std)
        data = _PlanData(
            planes[0],
            planes[1],
            (ctypes.c_float * 9)(*(np.array(rgb.matrix) * _LEVELS).flatten()),
            (ctypes.c_float * 3)(*(np.array(rgb.offset) * _LEVELS)),
            (ctypes.c_float * 3)(*(1 / (_LEVELS * std))),
            (ctypes.c_float * 3)(*(-mean / std)),
        )
        on_device = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self._device)
        torch.cuda.synchronize(self._device)  # once a kind: the tables are read on whatever stream a frame is on
        return _Plan(
            data=on_device,
            tables=tables,
            tiles=-(-geometry.rows.kept // TILE),
            threads=max(128, min(512, -(-max(plane.right - plane.left for plane in planes) // 128) * 32)),
            shared_bytes=shared_bytes,
            is_transposed=geometry.is_transposed,
            first_pixel=(geometry.top, geometry.left),
            covers_all=(geometry.height, geometry.width) == tuple(self._spec.crop),
        )


def _are_pairs(y: Tensor, u: Tensor, v: Tensor) -> bool:
    """Whether `u` and `v` are interleaved in one plane of the same pitch as `y`, and half its size (4:2:0)."""
    height, width = y.shape
    return (
        u.shape == ((height + 1) // 2, (width + 1) // 2)
        and u.stride() == (y.stride(0), 2)
        and v.data_ptr() - u.data_ptr() == u.element_size()
    )


def compile_kernel(architecture: str, *, sample_bytes: int, output_bytes: int) -> bytes:
    """A cubin of fused.cu for samples of 1 or 2 bytes, and outputs of 2 (fp16) or 4 bytes (fp32)."""
    source = resources.files("streamd.preprocess").joinpath("fused.cu").read_text()
    sample, vector = ("unsigned char", "uchar4") if sample_bytes == 1 else ("unsigned short", "ushort4")
    defines = [f"SAMPLE={sample}", f"VECTOR={vector}", f"OUTPUT_IS_HALF={int(output_bytes == 2)}"]
    return compile_source(source, architecture=architecture, defines=defines)
