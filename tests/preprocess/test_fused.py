"""The fused kernel: its tables, its compilation, and its pictures, against TorchPreprocessor.

Without a GPU the same kernel runs as C++ on the CPU, one thread a block.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.require import require

from streamd.errors import DeviceError
from streamd.preprocess import fused
from streamd.preprocess.fused import FusedPreprocessor, compile_kernel
from streamd.preprocess.nvrtc import compile_source
from streamd.preprocess.spec import Axis, InputSpec
from streamd.preprocess.tables import TILE, column_table, row_table
from streamd.preprocess.torch_ops import TorchPreprocessor
from streamd.preprocess.weights import resampling_weights
from streamd.types import Frame, Matrix

BILINEAR = InputSpec(resize=58, crop=(56, 56), interpolation="bilinear", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
BICUBIC = InputSpec(resize=64, crop=(50, 57), interpolation="bicubic", mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
SPECS = [pytest.param(BILINEAR, id="bilinear"), pytest.param(BICUBIC, id="bicubic")]


@st.composite
def dense_weights(draw):
    source, resized = draw(st.integers(1, 200)), draw(st.integers(1, 90))
    start = draw(st.integers(0, resized - 1))
    axis = Axis(source, resized, start, draw(st.integers(start + 1, resized)), is_reversed=draw(st.booleans()))
    interpolation = draw(st.sampled_from(["bilinear", "bicubic"]))
    return resampling_weights(axis, interpolation, plane_size=-(-source // draw(st.sampled_from([1, 2]))))


@given(weights=dense_weights())
def test_a_row_table_is_the_matrix_without_its_zeros_and_stays_within_the_rows(weights):
    count, source = weights.shape
    first, table = row_table(weights)
    tiles, span, width = table.shape
    assert (tiles, width) == (-(-count // TILE), TILE)
    assert first.min() >= 0
    assert first.max() + span <= source
    rebuilt = np.zeros((tiles * TILE, source), np.float32)
    for tile in range(tiles):
        rebuilt[tile * TILE : (tile + 1) * TILE, first[tile] : first[tile] + span] = table[tile].T
    assert (rebuilt[:count] == weights.astype(np.float32)).all()
    assert not rebuilt[count:].any()


@given(weights=dense_weights())
def test_a_column_table_is_the_matrix_without_its_zeros_and_stays_within_the_columns(weights):
    count, source = weights.shape
    first, table = column_table(weights)
    taps = len(table)
    assert table.shape == (taps, count)
    assert first.min() >= 0
    assert first.max() + taps <= source
    rebuilt = np.zeros((count, source), np.float32)
    for column in range(count):
        rebuilt[column, first[column] : first[column] + taps] = table[:, column]
    assert (rebuilt == weights.astype(np.float32)).all()


def test_tables_are_narrow():
    weights = resampling_weights(Axis(1080, 232, 4, 228, is_reversed=False), "bilinear", plane_size=1080)
    assert row_table(weights).weights.shape == (56, 24, 4)
    assert column_table(weights).weights.shape[0] <= 10


@pytest.mark.parametrize("output_bytes", [2, 4], ids=["fp16", "fp32"])
@pytest.mark.parametrize("sample_bytes", [1, 2])
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
def test_the_kernel_compiles_without_a_gpu(architecture, sample_bytes, output_bytes):
    cubin = compile_kernel(architecture, sample_bytes=sample_bytes, output_bytes=output_bytes)
    assert cubin.startswith(b"\x7fELF")
    assert b"preprocess" in cubin


def test_a_broken_source_is_refused_with_the_compilers_words():
    with pytest.raises(DeviceError, match=r"sm_80: streamd\.cu\(1\): error: .*\"nothing\" is undefined"):
        compile_source('extern "C" __global__ void broken() { nothing(); }', architecture="sm_80", defines=[])


def test_defines_reach_the_compiler():
    source = 'extern "C" __global__ void sized(int *out) { static_assert(SIZE == 3, "not three"); *out = SIZE; }'
    assert compile_source(source, architecture="sm_80", defines=["SIZE=3"])
    with pytest.raises(DeviceError, match="not three"):
        compile_source(source, architecture="sm_80", defines=["SIZE=4"])


def test_an_unknown_architecture_is_refused():
    with pytest.raises(DeviceError, match="sm_1"):
        compile_source("", architecture="sm_1", defines=[])


SHARED_LIMIT = 16 << 14
CPU_CUDA = """
#include <cmath>
#include <cstring>
#define __global__
#define __device__
#define __shared__
#define __syncthreads()
struct uchar4 { unsigned char x, y, z, w; };
struct ushort4 { unsigned short x, y, z, w; };
struct float4 { float x, y, z, w; };
struct Index { int x, y, z; };
static Index threadIdx{0, 0, 0}, blockIdx{0, 0, 0}, blockDim{1, 1, 1};
static int min(int a, int b) { return a < b ? a : b; }
float4 shared[1 << 14];
#include "fused.cu"
extern "C" void launch(int tiles, int frames, void **arguments)
{
    for (blockIdx.y = 0; blockIdx.y < frames; ++blockIdx.y) {
        for (blockIdx.x = 0; blockIdx.x < tiles; ++blockIdx.x) {
            memset(shared, 255, sizeof shared);
            preprocess(*(Surfaces *)arguments[0], *(Plan **)arguments[1], *(int *)arguments[2], *(int *)arguments[3], *(int *)arguments[4]);
        }
    }
}
"""
"""What fused.cu needs of CUDA. One thread a block does all the work of the block, and what it does not write is NaN."""


class CpuKernel:
    """A Kernel that runs fused.cu on the CPU, for float outputs."""

    def __init__(self, library: Path) -> None:
        self._launch = ctypes.CDLL(str(library)).launch
        self.launches = 0

    def launch(self, grid, threads, *, shared_bytes, stream, arguments):
        assert shared_bytes <= SHARED_LIMIT
        self.launches += 1
        self._launch(*grid, ctypes.c_void_p(arguments))


@pytest.fixture(scope="session")
def cpu_kernels(tmp_path_factory) -> dict[int, CpuKernel]:
    """By the bytes of a sample."""
    require(shutil.which("g++"), "g++ is not installed: apt-get install g++")
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "fused.cu").write_text(resources.files("streamd.preprocess").joinpath("fused.cu").read_text())
    (folder / "launch.cc").write_text(CPU_CUDA)
    kernels = {}
    for sample_bytes, sample, vector in ((1, "unsigned char", "uchar4"), (2, "unsigned short", "ushort4")):
        library = folder / f"fused{sample_bytes}.so"
        defines = [f"-DSAMPLE={sample}", f"-DVECTOR={vector}", "-DOUTPUT_IS_HALF=0"]
        subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", *defines, "launch.cc", "-o", library], cwd=folder, check=True)
        kernels[sample_bytes] = CpuKernel(library)
    return kernels


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the kernel runs."""

    device: torch.device
    kernels: dict[int, CpuKernel] = field(default_factory=dict)

    def preprocessor(self, spec: InputSpec) -> FusedPreprocessor:
        return FusedPreprocessor(spec, self.device)

    def output(self, spec: InputSpec) -> torch.Tensor:
        return torch.full((3, *spec.crop), torch.nan, device=self.device)

    @property
    def launches(self) -> int:
        """Since the tests began; on the CPU only."""
        return sum(kernel.launches for kernel in self.kernels.values())


@pytest.fixture
def on_cpu(cpu_kernels, monkeypatch) -> Machine:
    monkeypatch.setattr(fused, "shared_memory_limit", lambda index: SHARED_LIMIT)
    monkeypatch.setattr(fused, "_raw_stream", lambda index: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(FusedPreprocessor, "_load_kernel", lambda self, sample_bytes, output_bytes: cpu_kernels[sample_bytes])
    return Machine(torch.device("cpu"), cpu_kernels)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def machine(request) -> Machine:
    return request.getfixturevalue("on_cpu") if request.param == "cpu" else Machine(torch.device("cuda", 0))


def surface(size, *, depth: int = 8, rotation_deg: int = 0, pitch: int | None = None, device: torch.device) -> Frame:
    """An NV12 or, for more than 8 bits, P016 picture of smooth colours and some noise; what lies beside it is not for reading."""
    width, height = size
    rng = np.random.default_rng(width * height)
    rows, columns = np.mgrid[0 : height + (height + 1) // 2, 0 : (width + 1) // 2 * 2]
    levels = 120 + 60 * np.sin(rows / 17) + 40 * np.cos(columns // 2 / 11) + rng.integers(-15, 16, rows.shape)
    samples = np.full((len(rows), pitch or -(-width // 4) * 4), 255 << (depth - 8))
    samples[:, : rows.shape[1]] = levels * 2 ** (depth - 8)
    shift = 16 - depth if depth > 8 else 0
    plane = torch.from_numpy((samples << shift).astype(np.uint8 if depth == 8 else np.uint16)).to(device)
    return Frame(
        token=0,
        y=plane[:height, :width],
        u=plane[height:, 0 : width + width % 2 : 2],
        v=plane[height:, 1 : width + width % 2 : 2],
        bit_depth=depth,
        shift=shift,
        matrix=Matrix.BT709,
        full_range=False,
        rotation_deg=rotation_deg,
    )


def assert_same_picture(machine: Machine, frame: Frame, spec: InputSpec, out: torch.Tensor | None = None, *, tolerance: float = 0) -> None:
    """Within one level, where the exact value lies between two; `tolerance` in levels is for the output's own rounding."""
    out = machine.output(spec) if out is None else out
    before = machine.launches
    machine.preprocessor(spec)(frame, out)
    assert not machine.kernels or machine.launches == before + 1
    expected = machine.output(spec)
    TorchPreprocessor(spec, machine.device)(frame, expected)
    difference = (out.float() - expected).abs().cpu() * torch.tensor(spec.std).view(3, 1, 1) * 255
    assert difference.max() <= 1.01 + tolerance
    assert difference.mean() <= 0.01 + tolerance


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("depth", [8, 10, 12])
@pytest.mark.parametrize("size", [(320, 180), (180, 320), (321, 181), (64, 64), (99, 301)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_nv12_and_p016_become_what_torch_makes_of_them(size, depth, spec, machine):
    assert_same_picture(machine, surface(size, depth=depth, device=machine.device), spec)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("rotation_deg", [90, 180, 270])
@pytest.mark.parametrize("size", [(320, 180), (181, 321)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_turned_pictures_become_what_torch_makes_of_them(size, rotation_deg, spec, machine):
    assert_same_picture(machine, surface(size, rotation_deg=rotation_deg, device=machine.device), spec)


@pytest.mark.parametrize("rotation_deg", [0, 90])
@pytest.mark.parametrize("size", [(64, 36), (36, 64), (17, 17), (2, 2)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_what_a_small_picture_does_not_cover_is_black(size, rotation_deg, machine):
    spec = replace(BILINEAR, resize=20)
    frame = surface(size, rotation_deg=rotation_deg, device=machine.device)
    assert_same_picture(machine, frame, spec)
    out = machine.output(spec)
    machine.preprocessor(spec)(frame, out)
    assert out[:, 0, 0].tolist() == pytest.approx([-mean / std for mean, std in zip(spec.mean, spec.std, strict=True)])


@pytest.mark.parametrize("depth", [8, 10])
@pytest.mark.parametrize("pitch", [512, 322, 323])
def test_any_pitch_will_do(pitch, depth, machine):
    assert_same_picture(machine, surface((321, 100), depth=depth, pitch=pitch, device=machine.device), BILINEAR)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float16, marks=pytest.mark.gpu)])
def test_a_row_of_a_channels_last_pool_is_written_and_no_other(dtype, machine):
    if machine.kernels and dtype is torch.float16:
        pytest.skip("halves are made by the GPU's own instruction")
    pool = torch.full((3, *BILINEAR.crop, 3), -9.0, dtype=dtype, device=machine.device)
    row = pool.permute(0, 3, 1, 2)[1]
    # fp16 has 11 bits for values up to 2.64, of which a level is 0.017: 0.06 levels.
    frame = surface((320, 180), rotation_deg=90, device=machine.device)
    assert_same_picture(machine, frame, BILINEAR, row, tolerance=0.1 if dtype is torch.float16 else 0)
    assert (pool[[0, 2]] == -9.0).all()


def test_kinds_of_frames_alternate_without_mixing(machine):
    shared = machine.preprocessor(BILINEAR)
    frames = [
        surface(size, depth=depth, rotation_deg=turn, device=machine.device)
        for size in ((320, 180), (64, 64))
        for depth in (8, 10)
        for turn in (0, 90)
    ]
    expected = [machine.output(BILINEAR) for _ in frames]
    for frame, out in zip(frames, expected, strict=True):
        machine.preprocessor(BILINEAR)(frame, out)
    for frame, alone in [*zip(frames, expected, strict=True)] * 2:
        out = machine.output(BILINEAR)
        shared(frame, out)
        assert torch.equal(out, alone)


def test_frames_of_one_kind_share_launches_and_each_gets_its_own_output(machine):
    shared = machine.preprocessor(BILINEAR)
    kinds = {(320, 180): 40, (64, 64): 3}
    frames = [surface(size, device=machine.device) for size, count in kinds.items() for _ in range(count)]
    for number, frame in enumerate(frames):
        frame.y.add_(number)
    random.Random(1).shuffle(frames)
    frames.insert(5, planar(frames[0]))
    expected, outs = [machine.output(BILINEAR) for _ in frames], [machine.output(BILINEAR) for _ in frames]
    for frame, out in zip(frames, expected, strict=True):
        shared(frame, out)
    before = machine.launches
    shared.many(frames, outs)
    assert not machine.kernels or machine.launches - before == 3  # 32 and 8 of the one, 3 of the other; the planar one goes to torch
    assert all(torch.equal(out, alone) for out, alone in zip(outs, expected, strict=True))
    assert len({out.sum().item() for out in outs}) > len(outs) - 5


def planar(frame: Frame) -> Frame:
    return replace(frame, u=frame.u.contiguous(), v=frame.v.contiguous())


def grey(frame: Frame) -> Frame:
    return replace(frame, u=None, v=None)


def nv21(frame: Frame) -> Frame:
    return replace(frame, u=frame.v, v=frame.u)


def nv16(frame: Frame) -> Frame:
    pairs = torch.arange(frame.y.numel(), device=frame.y.device).remainder(200).to(torch.uint8).view(frame.y.shape)
    return replace(frame, y=frame.y.contiguous(), u=pairs[:, 0::2], v=pairs[:, 1::2])


@pytest.mark.parametrize("layout", [planar, grey, nv21, nv16])
def test_frames_of_other_layouts_go_to_torch(layout, machine):
    frame = layout(surface((320, 180), device=machine.device))
    out, expected = machine.output(BILINEAR), machine.output(BILINEAR)
    before = machine.launches
    machine.preprocessor(BILINEAR)(frame, out)
    assert machine.launches == before
    TorchPreprocessor(BILINEAR, machine.device)(frame, expected)
    assert torch.equal(out, expected)


def test_rows_too_long_for_the_shared_memory_go_to_torch(on_cpu, monkeypatch):
    monkeypatch.setattr(fused, "shared_memory_limit", lambda index: 1024)
    frame, out, expected = surface((320, 180), device=on_cpu.device), on_cpu.output(BILINEAR), on_cpu.output(BILINEAR)
    before = on_cpu.launches
    on_cpu.preprocessor(BILINEAR)(frame, out)
    assert on_cpu.launches == before
    TorchPreprocessor(BILINEAR, "cpu")(frame, expected)
    assert torch.equal(out, expected)


def test_an_output_of_another_shape_is_refused(machine):
    with pytest.raises(ValueError, match=r"\(3, 56, 40\)"):
        machine.preprocessor(BILINEAR)(surface((320, 180), device=machine.device), torch.empty(3, 56, 40, device=machine.device))
