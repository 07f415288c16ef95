"""What each program is asked to do. This module is light: run.py needs it, and must leave the GPU to the programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Classify every frame of `clip`, as fast as you can."""

    clip: str
    """So long that no program is measured while it opens the file again."""
    device: str = "cuda"
    width: int = 1920
    height: int = 1080
    model: str = "resnet50"
    seconds: float = 4.0
    """How long is measured, after a warm-up."""
    warm_up_s: float = 3.0
    threads: int = 16
    workers: int = 8
    """Processes of a DataLoader."""
    batch: int = 32
    rounds: int = 10
    """How many batches are timed where batches are; what is fast is timed more often."""


class Unavailable(Exception):
    """This program cannot run here; its text says why."""
