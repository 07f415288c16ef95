"""Which worker gets which cameras, on which GPU. `place` is pure; `visible_gpus` asks the driver, without torch, and loads no CUDA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamd.config.types import EngineConfig

WORKERS_PER_GPU = 4
"""Measured on one H200: 4 processes of 8 streams reach the decoders' own limit; one process is held back by its interpreter lock."""

_DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class Placement:
    """The share of one worker."""

    worker: str
    cameras: tuple[str, ...]
    gpu: str | None
    """What its CUDA_VISIBLE_DEVICES must say; None where there is no choice to make."""


def place(cameras: Sequence[str], *, engine: EngineConfig, gpus: Sequence[str]) -> list[Placement]:
    """Deal `cameras` out in turn. No worker is without a camera, so there may be fewer than `engine.workers`."""
    if engine.device == "cpu":
        gpus = ()
    wanted = max(1, WORKERS_PER_GPU * len(gpus)) if engine.workers == "auto" else engine.workers
    count = min(wanted, len(cameras))
    return [
        Placement(
            worker=f"w{number}",
            cameras=tuple(cameras[number::count]),
            gpu=gpus[number % len(gpus)] if len(gpus) > 1 else None,
        )
        for number in range(count)
    ]


def visible_gpus(environ: Mapping[str, str]) -> list[str]:
    """The GPUs that CUDA would use, in the words of CUDA_VISIBLE_DEVICES; none where there is no driver."""
    count = _count_gpus()
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or count == 0:
        return [str(index) for index in range(count)]
    gpus: list[str] = []
    for name in map(str.strip, chosen.split(",")):
        # CUDA takes the list up to the first name that is no GPU; people write -1 or nothing for "none".
        if not (name.startswith(("GPU-", "MIG-")) or (name.isdecimal() and int(name) < count)):
            break
        gpus.append(name)
    return gpus


def _count_gpus() -> int:
    """By NVML where nvidia-ml-py is installed, else by what the driver lists in /proc."""
    try:
        import pynvml  # noqa: PLC0415 - comes with the extra `gpu`
    except ImportError:
        return sum(1 for _ in _DRIVER_GPUS.iterdir()) if _DRIVER_GPUS.is_dir() else 0
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
    finally:
        pynvml.nvmlShutdown()
