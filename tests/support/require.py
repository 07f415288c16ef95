"""What a test may need that a machine may lack: skip with a reason, or fail where everything is expected to be there."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import pytest

REQUIRE_ALL = "STREAMD_TEST_REQUIRE_ALL"
MEDIA = "STREAMD_TEST_MEDIA"


def require(condition: object, reason: str) -> None:
    """Skip the running test unless `condition` holds; fail it instead where STREAMD_TEST_REQUIRE_ALL=1.

    `reason` says what is missing and how to get it.
    """
    if condition:
        return
    if os.environ.get(REQUIRE_ALL, "") not in {"", "0"}:
        pytest.fail(f"{reason} ({REQUIRE_ALL} is set)", pytrace=False)
    pytest.skip(reason)


@cache
def has_gpu() -> bool:
    """Whether the NVIDIA driver is here and finds at least one GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def media_folder() -> Path:
    """Where the shared media files are: $STREAMD_TEST_MEDIA, else `../shared/media` beside the checkout. It may not exist."""
    named = os.environ.get(MEDIA)
    return Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "media"


def media_files() -> list[Path]:
    """The media files, sorted by name, for parametrizing `media` tests; empty where the folder is missing."""
    folder = media_folder()
    return sorted(path for path in folder.iterdir() if path.suffix != ".csv") if folder.is_dir() else []
