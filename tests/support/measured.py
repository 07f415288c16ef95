"""What a load measured, for tests of what is said and decided about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamd.bench.load import Measured
from streamd.bench.usage import Usage

IDLE = Usage(cpu=0.2, decoder=None, gpu=None, gpu_memory_mb=None)


def measured(**fields: Any) -> Measured:
    """4 cameras of 10 frames a second, all well, but for `fields`."""
    well = Measured(
        cameras=4,
        workers=1,
        startup_s=1.0,
        seconds=2.0,
        received=80,
        published=80,
        dropped={},
        fps=40.0,
        cpu_ms_per_frame=1.5,
        mean_batch=2.0,
        p50_ms=20.0,
        p99_ms=60.0,
        jain=1.0,
        usage=IDLE,
    )
    return replace(well, **fields)
