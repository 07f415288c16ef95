"""A small clip, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.measured import IDLE, measured

from streamd.bench.clips import ClipSpec, make
from streamd.bench.load import Measured
from streamd.bench.usage import Usage

SMALL = ClipSpec(width=320, height=240, fps=10, seconds=2, gop=10, kbit_s=300)


@pytest.fixture(scope="session")
def small_clip(tmp_path_factory) -> Path:
    """320x240 H.264, 20 frames at 10 a second."""
    return make(SMALL, tmp_path_factory.mktemp("bench"))


@pytest.fixture(name="idle")
def _idle() -> Usage:
    return IDLE


@pytest.fixture(name="measured")
def _measured() -> Measured:
    """4 cameras of 10 frames a second, all well."""
    return measured()
