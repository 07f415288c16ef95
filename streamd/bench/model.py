"""How fast a model is on this machine, batch by batch, as the engine runs it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from streamd import models
from streamd.config.types import ModelConfig
from streamd.engine.cuda_runner import CudaRunner
from streamd.engine.runner import CpuRunner, Runner
from streamd.engine.slots import SlotPool
from streamd.types import Batch, FrameRef, Sample

_WARM_UP_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class ModelResult:
    precision: str
    compile: bool
    batch: int
    ms_per_batch: float
    """Median, from launch to results on the host, one batch at a time."""
    images_per_s: float


def measure(model: dict[str, Any], device_name: str, *, batches: Sequence[int], seconds: float) -> list[ModelResult]:
    """`model` as `models.NAME` in a configuration; each size of a batch for `seconds`. Raises ModelError."""
    device = torch.device(device_name)
    loaded = models.load("bench", ModelConfig.model_validate(model), device=device)
    height, width = loaded.input.crop
    dtype = torch.float32 if loaded.precision == "fp32" else torch.float16
    pool = SlotPool(max(batches), height=height, width=width, dtype=dtype, device=device)
    runner: Runner = (
        CudaRunner(loaded, pool, top_k=5, max_batch=max(batches)) if device.type == "cuda" else CpuRunner(loaded, pool, top_k=5)
    )
    runner.warm_up()
    return [_time(runner, batch, loaded.precision, compiled=loaded.compile, seconds=seconds) for batch in batches]


def _time(runner: Runner, size: int, precision: str, *, compiled: bool, seconds: float) -> ModelResult:
    ref = FrameRef("bench", "bench", 0, None, Fraction(1), 0, 0, 0)
    batch = Batch([Sample(ref, slot, 0, None) for slot in range(size)], 0)
    times: list[float] = []
    end_s = time.perf_counter() + seconds
    while len(times) <= _WARM_UP_ROUNDS or time.perf_counter() < end_s:
        began_s = time.perf_counter()
        runner.collect(runner.launch(batch))
        times.append(time.perf_counter() - began_s)
    median_s = sorted(times[_WARM_UP_ROUNDS:])[(len(times) - _WARM_UP_ROUNDS) // 2]
    return ModelResult(precision, compiled, size, round(median_s * 1000, 3), round(size / median_s, 1))
