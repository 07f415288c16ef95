"""A small clip, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamd.bench.clips import ClipSpec, make
from streamd.bench.load import Measured
from streamd.bench.usage import Usage

SMALL = ClipSpec(width=320, height=240, fps=10, seconds=2, gop=10, kbit_s=300)


@pytest.fixture(scope="session")
def small_clip(tmp_path_factory) -> Path:
    """320x240 H.264, 20 frames at 10 a second."""
    return make(SMALL, tmp_path_factory.mktemp("bench"))


@pytest.fixture
def idle() -> Usage:
    return Usage(cpu=0.2, decoder=None, gpu=None, gpu_memory_mb=None)


@pytest.fixture
def measured(idle) -> Measured:
    """4 cameras of 10 frames a second, all well."""
    return Measured(
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
        usage=idle,
    )
