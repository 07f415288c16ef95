"""How busy the machine is while something is measured: processors by /proc, the GPU by NVML. Without a GPU its figures are None."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class Usage:
    """Means over the measured time; fractions of the whole are 0..1."""

    cpu: float
    decoder: float | None
    gpu: float | None
    gpu_memory_mb: float | None
    """At the end."""


class UsageMeter:
    """`start`, then `stop` once."""

    def __init__(self) -> None:
        self._device = _nvml_device()
        self._samples: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="usage", daemon=True)

    def start(self) -> None:
        self._before = _cpu_times()
        self._thread.start()

    def stop(self) -> Usage:
        self._over.set()
        self._thread.join()
        idle, total = (after - before for after, before in zip(_cpu_times(), self._before, strict=True))
        decoder, gpu = (
            (sum(column) / len(column) if column else None for column in zip(*self._samples, strict=True))
            if self._samples
            else (None, None)
        )
        memory = None if self._device is None else self._device.memory_mb()
        return Usage(round(1 - idle / max(total, 1), 3), _rounded(decoder), _rounded(gpu), memory)

    def _sample(self) -> None:
        while self._device is not None and not self._over.wait(_INTERVAL_S):
            self._samples.append(self._device.utilization())


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _cpu_times() -> tuple[int, int]:
    """Idle and total ticks of all processors together (proc(5))."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return fields[3] + fields[4], sum(fields[:8])


class _NvmlDevice:
    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(0)

    def utilization(self) -> tuple[float, float]:
        """Of the decoder engines and of the multiprocessors."""
        decoder, _ = self._nvml.nvmlDeviceGetDecoderUtilization(self._handle)
        return decoder / 100, self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100

    def memory_mb(self) -> float:
        return round(float(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used) / 1e6, 1)


def _nvml_device() -> _NvmlDevice | None:
    try:
        import pynvml  # noqa: PLC0415 - comes with the extra `gpu`
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return _NvmlDevice(pynvml)
    except pynvml.NVMLError:
        return None
