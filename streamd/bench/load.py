"""The real daemon's workers under a load: many cameras that play one clip, their results in a real Redis, everything counted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from streamd.bench.usage import Usage, UsageMeter
from streamd.config.redaction import reveal
from streamd.config.types import Config
from streamd.daemon.daemon import WORKER_ARGV
from streamd.daemon.placement import Gpu, Placement, place, visible_gpus
from streamd.daemon.supervisor import Supervisor, Timing
from streamd.errors import StreamdError
from streamd.histogram import DurationHistogram
from streamd.records import Phase
from streamd.types import Ledger
from streamd.worker.protocol import Changed, Counts, Start

_STARTUP_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What a load gave in its measured time."""

    cameras: int
    workers: int
    startup_s: float
    """From the start until the last camera was up."""
    seconds: float
    received: int
    published: int
    dropped: dict[str, int]
    fps: float
    """Results published a second."""
    cpu_ms_per_frame: float
    """Processor time of all workers for one published frame, in milliseconds of one core."""
    mean_batch: float
    p50_ms: float | None
    """From the arrival of a frame's own packet to Redis's acknowledgement."""
    p99_ms: float | None
    jain: float
    """Jain's fairness index over the results of each camera: 1 when all got the same."""
    usage: Usage

    @property
    def is_lossless(self) -> bool:
        return not self.dropped


class Load:
    """Workers with their cameras. `start`, any number of `measure`, `stop`."""

    def __init__(self, config: Config, *, gpus: Sequence[Gpu] | None = None) -> None:
        self._config = config
        placements = place(config, gpus=visible_gpus(os.environ) if gpus is None else gpus)
        self._workers = [Supervisor(placement, listener=self, argv=WORKER_ARGV, timing=Timing()) for placement in placements]
        self._up: set[str] = set()
        self._counts: dict[str, Counts] = {}
        self._lives: list[asyncio.Task[None]] = []
        self._problem: str | None = None
        self.startup_s = 0.0

    async def start(self) -> None:
        """Until every camera is up. Raises StreamdError when that does not happen."""
        began_s = time.monotonic()
        self._lives = [asyncio.create_task(worker.run()) for worker in self._workers]
        while len(self._up) < len(self._config.cameras):
            await asyncio.sleep(0.05)
            for life in self._lives:
                if life.done():
                    life.result()
            if self._problem is not None:
                raise StreamdError(self._problem)
            if time.monotonic() - began_s > _STARTUP_TIMEOUT_S:
                raise StreamdError(f"only {len(self._up)} of {len(self._config.cameras)} cameras came up in {_STARTUP_TIMEOUT_S:g} s")
        self.startup_s = time.monotonic() - began_s

    async def measure(self, seconds: float) -> Measured:
        """What happens in the next `seconds`, between two counts of each worker. Raises StreamdError when a worker or camera fails."""
        meter = UsageMeter()
        first = await self._next_counts()
        meter.start()
        await asyncio.sleep(seconds)
        usage = meter.stop()
        last = await self._next_counts()
        return _measured(first, last, cameras=len(self._config.cameras), startup_s=self.startup_s, usage=usage)

    async def _next_counts(self) -> dict[str, Counts]:
        """A count of each worker that is not older than this call."""
        now_ns = time.monotonic_ns()
        while True:
            if self._problem is not None:
                raise StreamdError(self._problem)
            fresh = {worker: counts for worker, counts in self._counts.items() if counts.at_ns >= now_ns}
            if len(fresh) == len(self._workers):
                return fresh
            await asyncio.sleep(0.02)

    @property
    def received(self) -> int:
        """Frames that all cameras received since the start, by the latest counts."""
        return sum(ledger.received for counts in self._counts.values() for ledger in counts.ledgers.values())

    @property
    def shared_decoders(self) -> int:
        """Decoder sessions of cameras in key-frame mode, by the latest counts."""
        return sum(counts.shared_decoders for counts in self._counts.values())

    async def stop(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.stop(timeout_s=_STOP_TIMEOUT_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self._lives, return_exceptions=True), _STOP_TIMEOUT_S + 5)
        for worker in self._workers:
            worker.kill()
        await asyncio.gather(*self._lives, return_exceptions=True)

    # What the supervisors tell: see supervisor.Listener.

    def start_message(self, placement: Placement) -> Start | None:
        cameras = list(placement.cameras)
        return Start(placement.worker, reveal(self._config), cameras, len(self._workers), log_level="error", log_json=False)

    def worker_ready(self, placement: Placement) -> None:
        pass

    def worker_changed(self, message: Changed) -> None:
        if message.state.phase is Phase.UP:
            self._up.add(message.state.camera)
        elif message.state.phase is Phase.ENDED:
            self._problem = f"camera {message.state.camera} has read its file to the end: measure fewer seconds, or a longer --clip"
        elif message.state.phase not in {Phase.CONNECTING, Phase.STOPPED}:
            self._problem = f"camera {message.state.camera} is {message.state.phase}: {message.state.detail}"

    def worker_released(self, placement: Placement, camera: str) -> None:
        raise AssertionError(f"{placement.worker} let go of {camera}, and nobody asked")

    def worker_counted(self, placement: Placement, message: Counts) -> None:
        self._counts[placement.worker] = message

    def worker_died(self, placement: Placement, *, detail: str, retry_in_s: float) -> None:  # noqa: ARG002
        self._problem = f"worker {placement.worker} died: {detail}"


def _measured(first: dict[str, Counts], last: dict[str, Counts], *, cameras: int, startup_s: float, usage: Usage) -> Measured:
    received = published = batches = 0
    dropped: dict[str, int] = {}
    fps = cpu_s = longest_s = 0.0
    each: list[int] = []
    latency = DurationHistogram()
    for worker, after in last.items():
        before = first[worker]
        seconds = (after.at_ns - before.at_ns) / 1e9
        results = 0
        for camera, ledger in after.ledgers.items():
            earlier = before.ledgers.get(camera, Ledger())
            received += ledger.received - earlier.received
            each.append(ledger.published - earlier.published)
            results += each[-1]
            for reason, count in ledger.dropped.items():
                if count := count - earlier.dropped.get(reason, 0):
                    dropped[reason] = dropped.get(reason, 0) + count
        published += results
        fps += results / seconds
        cpu_s += after.cpu_s - before.cpu_s
        batches += after.batches - before.batches
        longest_s = max(longest_s, seconds)
        latency += DurationHistogram(after.latency) - DurationHistogram(before.latency)
    return Measured(
        cameras=cameras,
        workers=len(last),
        startup_s=round(startup_s, 2),
        seconds=round(longest_s, 2),
        received=received,
        published=published,
        dropped=dropped,
        fps=round(fps, 1),
        cpu_ms_per_frame=round(1000 * cpu_s / max(published, 1), 3),
        mean_batch=round(published / max(batches, 1), 2),
        p50_ms=_ms(latency.percentile_s(50)),
        p99_ms=_ms(latency.percentile_s(99)),
        jain=round(_jain(each), 4),
        usage=usage,
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)


def _jain(values: Sequence[int]) -> float:
    """Jain's fairness index: (sum x)^2 / (n * sum x^2)."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
