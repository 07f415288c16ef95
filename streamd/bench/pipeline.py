"""End to end: the real workers on real clips, results published to a real Redis. Unpaced for throughput, paced for capacity."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamd.bench.load import Load, Measured
from streamd.config.types import Config
from streamd.demo import redis_server

_SETTLE_S = 2.0
ONCE_STARTUP_S = 10.0
"""How long the first camera of a load may play before the last is up."""
ONCE_FPS = 800
"""How fast a file is read that is played once: one NVDEC session of 1080p H.264 gives 760 frames a second."""
_BELOW = 0.97
"""What an overloaded machine does, less this, is likely to fit."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What all loads of one benchmark share."""

    clip: Path
    model: dict[str, Any]
    """As `models.NAME` in a configuration."""
    device: str
    workers: int | None
    redis_url: str
    engine: dict[str, Any]
    decoder: str = "auto"
    """As in a camera's configuration."""
    once: bool = False
    """The clip is long enough: each camera plays it once."""

    def config(self, cameras: int, *, paced: bool) -> Config:
        """`cameras` that all play the clip."""
        camera = {"url": str(self.clip), "loop": not self.once, "realtime": paced, "decoder": self.decoder}
        return Config.model_validate(
            {
                "redis": {"url": self.redis_url, "prefix": "streamd-bench", "max_entries": 1000},
                "spool": None,
                "models": {"bench": self.model},
                "engine": {"device": self.device, "workers": self.workers or "auto", "slots": 512, **self.engine},
                "cameras": {f"bench-{number}": camera for number in range(cameras)},
            }
        )


def once_frames(seconds: float) -> int:
    """How many frames a file needs that is played once while it is measured for `seconds`."""
    return math.ceil((ONCE_STARTUP_S + _SETTLE_S + seconds) * ONCE_FPS)


@asynccontextmanager
async def private_redis(folder: Path) -> AsyncIterator[str]:
    """A Redis of our own; its address. Raises DemoUnavailable."""
    server, address = await redis_server.start(redis_server.find_binary(), folder)
    try:
        yield address.url
    finally:
        await server.stop(timeout_s=2)


async def run(setup: Setup, cameras: int, *, paced: bool, seconds: float) -> Measured:
    """One load, measured once after it has settled."""
    load = Load(setup.config(cameras, paced=paced))
    try:
        await load.start()
        await asyncio.sleep(_SETTLE_S)
        return await load.measure(seconds)
    finally:
        await load.stop()


@dataclass(frozen=True, slots=True)
class Slo:
    """What a live camera is promised: no drops, and `percent` of the results within `within_ms` of their packet's arrival."""

    percent: float
    within_ms: float

    def is_met(self, measured: Measured, *, expected_fps: float) -> bool:
        late = measured.p99_ms if self.percent == 99 else measured.p50_ms
        return not measured.dropped and late is not None and late <= self.within_ms and measured.fps >= 0.99 * expected_fps


async def capacity(
    setup: Setup,
    *,
    slo: Slo,
    camera_fps: float,
    seconds: float,
    start: int,
    tell: Callable[[Measured, bool], None],
) -> tuple[int, Measured | None]:
    """The largest number of live cameras that meets `slo`, to 3 per cent.

    After a number that fits, twice as many are tried; after one that does not, what the machine did meanwhile says where to look.
    """
    good, bad = 0, math.inf
    best: Measured | None = None
    cameras = start
    while good + max(1, good * 0.03) < bad:
        measured = await run(setup, cameras, paced=True, seconds=seconds)
        met = slo.is_met(measured, expected_fps=camera_fps * cameras)
        tell(measured, met)
        if met:
            good, best = cameras, measured
            cameras = good * 2 if bad == math.inf else int((good + bad) // 2)
        else:
            bad = cameras
            did = int(measured.fps / camera_fps * _BELOW)
            cameras = did if good < did < bad * 0.9 else int((good + bad) // 2)
    return good, best


def gpu_mb_per_camera(grown: Sequence[Measured]) -> float | None:
    """GPU memory of each further camera, by least squares; None where there is no GPU or only one number of cameras."""
    points = [(measured.cameras, memory) for measured in grown if (memory := measured.usage.gpu_memory_mb) is not None]
    if len({cameras for cameras, _ in points}) < 2:
        return None
    return round(statistics.linear_regression(*zip(*points, strict=True)).slope, 2)
