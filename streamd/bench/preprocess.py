"""What preprocessing costs: time on the device and on the host for a frame, for each implementation that there is on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from streamd import preprocess
from streamd.preprocess.spec import InputSpec
from streamd.preprocess.torch_ops import TorchPreprocessor
from streamd.types import Frame, Matrix

RESNET50_INPUT = InputSpec(resize=232, crop=(224, 224), interpolation="bilinear", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
_FRAMES = 32
_ROUNDS = 20
_SPIN_CYCLES = 20_000_000
"""Keeps the GPU busy while the host queues the launches, so that they run back to back."""


@dataclass(frozen=True, slots=True)
class PreprocessResult:
    """Medians over rounds of 32 frames, in microseconds a frame."""

    implementation: str
    frames_per_launch: int
    """As many frames are preprocessed in one call."""
    width: int
    height: int
    device_us: float | None
    host_us: float


def measure(device_name: str, *, width: int = 1920, height: int = 1080) -> list[PreprocessResult]:
    """Each implementation on `cpu` or `cuda`, on NV12 frames of random pixels in as many buffers."""
    device = torch.device(device_name)
    spec = RESNET50_INPUT
    plain = TorchPreprocessor(spec, device)
    runs: list[tuple[str, int, preprocess.Preprocessor]] = [("torch", 1, plain)]
    if device.type == "cuda":
        fused = preprocess.create(spec, device)
        runs = [("fused", 1, fused), ("fused", _FRAMES, fused), *runs]
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    frames = [_frame(width, height, device) for _ in range(_FRAMES)]
    outs = list(torch.zeros((_FRAMES, *spec.crop, 3), dtype=dtype, device=device).permute(0, 3, 1, 2))
    return [
        PreprocessResult(name, together, width, height, *_time(implementation, frames, outs, together, device))
        for name, together, implementation in runs
    ]


def _frame(width: int, height: int, device: torch.device) -> Frame:
    surface = torch.randint(0, 256, (height * 3 // 2, width), dtype=torch.uint8, device=device)
    return Frame(
        token=0,
        y=surface[:height],
        u=surface[height:, 0::2],
        v=surface[height:, 1::2],
        bit_depth=8,
        shift=0,
        matrix=Matrix.BT709,
        full_range=False,
        rotation_deg=0,
    )


def _time(
    implementation: preprocess.Preprocessor, frames: list[Frame], outs: list[torch.Tensor], together: int, device: torch.device
) -> tuple[float | None, float]:
    on_gpu = device.type == "cuda"
    device_us, host_us = [], []
    for round_ in range(_ROUNDS + 2):
        if on_gpu:
            torch.cuda._sleep(_SPIN_CYCLES)  # noqa: SLF001 - nothing public keeps a GPU busy
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
        began_s = time.perf_counter()
        for first in range(0, len(frames), together):
            implementation.many(frames[first : first + together], outs[first : first + together])
        elapsed_us = (time.perf_counter() - began_s) * 1e6 / len(frames)
        if on_gpu:
            end.record()
            torch.cuda.synchronize(device)
        if round_ >= 2:
            host_us.append(elapsed_us)
            if on_gpu:
                device_us.append(begin.elapsed_time(end) * 1000 / len(frames))
    return (round(sorted(device_us)[len(device_us) // 2], 2) if device_us else None), round(sorted(host_us)[len(host_us) // 2], 2)
