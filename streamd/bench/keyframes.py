"""Key frames of very many cameras, through the real workers to Redis; and of each published result, whose picture it was made from.

Each camera plays a clip, paced, that has one key frame a second and shows a number (`bench/identity.py`). The label of each of its
results must be that number: a picture that was taken for another camera's shows as a wrong label. A number and a size belong together,
so a picture of another size shows too.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from streamd.bench import identity
from streamd.bench.clips import ClipSpec, marked
from streamd.bench.load import Load
from streamd.bench.pipeline import private_redis
from streamd.bench.usage import Usage
from streamd.client import Client
from streamd.config.types import Config
from streamd.records import Result
from streamd.types import DropReason

PREFIX = "streamd-bench"
FPS = 30
_SIZES = {
    "h264": [(1920, 1080), (1280, 720), (1280, 532), (1280, 530), (704, 576), (642, 362), (640, 360)],
    "hevc": [(1920, 1080), (1280, 720), (1280, 532), (1280, 530), (642, 362)],
}
FORMATS = tuple(
    ClipSpec(codec=codec, width=width, height=height, fps=FPS, seconds=1, gop=FPS, b_frames=b_frames)
    for codec, sizes in _SIZES.items()
    for width, height in sizes
    for b_frames in ((0, 2) if (width, height) == (1280, 720) else (0,))
)
"""Some differ in a few lines or columns only, or in B-frames only."""
_SETTLE_S = 2.0
_NO_MORE_S = 3.0
"""So long after the last result nothing is written any more."""


@dataclass(frozen=True, slots=True)
class KeyframesResult:
    cameras: int
    workers: int
    formats: int
    numbers: int
    """How many different numbers the cameras show."""
    startup_s: float
    seconds: float
    results: int
    """All that were published, from the start on; each was looked at."""
    wrong_labels: int
    """Results whose picture was another camera's."""
    lost_key_frames: int
    """Missing between two results of a camera, in the measured time."""
    silent_cameras: int
    """Without any result in the measured time."""
    sessions: int
    """Decoder sessions, of all threads of all workers."""
    fps: float
    """Results a second, in the measured time."""
    p50_ms: float | None
    p99_ms: float | None
    cpu_ms_per_result: float
    dropped: dict[str, int]
    """In the measured time, but for frames that are no key frames."""
    usage: Usage

    @property
    def is_proof(self) -> bool:
        return self.results > 0 and not (self.wrong_labels or self.lost_key_frames or self.silent_cameras)


def clips(folder: Path, count: int, *, formats: Sequence[ClipSpec] = FORMATS) -> list[Path]:
    """`count` clips in `folder`: number `n` shows `n`, in the format `n % len(formats)`; MP4 and MPEG-TS in turns."""
    paths = [folder / f"{number}-{formats[number % len(formats)].name}" for number in range(count)]
    paths = [path.with_suffix((".mp4", ".ts")[number // len(formats) % 2]) for number, path in enumerate(paths)]

    def make(number: int) -> None:
        marked(formats[number % len(formats)], lambda luma: identity.mark(luma, number), paths[number])

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(make, range(count)))
    return paths


def config(paths: Sequence[Path], cameras: int, *, folder: Path, device: str, workers: int | None, redis_url: str) -> Config:
    """Camera `n` plays clip `n % len(paths)` for ever. The model's files are written into `folder`."""
    return Config.model_validate(
        {
            "redis": {"url": redis_url, "prefix": PREFIX, "max_entries": 1000},
            "spool": None,
            "models": {"identity": identity.model(folder)},
            "engine": {"device": device, "workers": workers or "auto", "slots": 512},
            "cameras": {
                name(number): {"url": str(paths[number % len(paths)]), "loop": True, "realtime": True, "decode": "keyframes"}
                for number in range(cameras)
            },
        }
    )


def name(number: int) -> str:
    return f"bench-{number}"


async def measure(
    cameras: int, *, folder: Path, device: str, workers: int | None, seconds: float, formats: Sequence[ClipSpec] = FORMATS
) -> KeyframesResult:
    """Make the clips and a Redis in `folder`, then `run`. Raises StreamdError, DemoUnavailable."""
    paths = clips(folder, min(cameras, identity.NUMBERS), formats=formats)
    async with private_redis(folder) as url:
        load_config = config(paths, cameras, folder=folder, device=device, workers=workers, redis_url=url)
        return await run(load_config, numbers=len(paths), formats=min(len(formats), len(paths)), redis_url=url, seconds=seconds)


async def run(load_config: Config, *, numbers: int, formats: int, redis_url: str, seconds: float) -> KeyframesResult:
    """One load; its results are read from Redis when all workers have ended, so that reading costs them nothing."""
    load = Load(load_config)
    try:
        await load.start()
        await asyncio.sleep(_SETTLE_S)
        began_ms = time.time() * 1000  # while many decoder sessions start, one after the other, frames come too late
        measured = await load.measure(seconds)
        sessions = load.shared_decoders
    finally:
        await load.stop()
    sequences: defaultdict[str, list[int]] = defaultdict(list)
    results = wrong = 0
    async for result in published(redis_url, list(load_config.cameras)):
        results += 1
        wrong += not shows_itself(result, numbers=numbers)
        if result.captured_ms >= began_ms:
            sequences[result.camera].append(result.sequence)
    return KeyframesResult(
        cameras=measured.cameras,
        workers=measured.workers,
        formats=formats,
        numbers=numbers,
        startup_s=measured.startup_s,
        seconds=measured.seconds,
        results=results,
        wrong_labels=wrong,
        lost_key_frames=sum(map(lost, sequences.values())),
        silent_cameras=measured.cameras - len(sequences),
        sessions=sessions,
        fps=measured.fps,
        p50_ms=measured.p50_ms,
        p99_ms=measured.p99_ms,
        cpu_ms_per_result=measured.cpu_ms_per_frame,
        dropped={reason: count for reason, count in measured.dropped.items() if reason != DropReason.SAMPLED_OUT},
        usage=measured.usage,
    )


async def published(redis_url: str, cameras: Sequence[str]) -> AsyncIterator[Result]:
    """All results that Redis holds of `cameras`."""
    entries = Client(redis_url, prefix=PREFIX).results(*cameras, from_="0")
    while True:
        try:
            entry = await asyncio.wait_for(anext(entries), _NO_MORE_S)
        except TimeoutError:
            return
        yield entry.record


def shows_itself(result: Result, *, numbers: int) -> bool:
    """Whether the number that was read from the picture is the camera's own."""
    number = int(result.camera.rpartition("-")[2]) % numbers
    return [label.index for label in result.labels] == [number]


def lost(sequences: Sequence[int], *, gop: int = FPS) -> int:
    """Key frames that are missing between the first and the last result of a camera."""
    return (max(sequences) - min(sequences)) // gop + 1 - len(sequences)
