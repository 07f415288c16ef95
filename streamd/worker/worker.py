"""What a worker owns: one device, the models on it, the engine, its cameras, and the sinks that their results go to."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import structlog
import torch

from streamd import models, sinks
from streamd.camera.camera import Camera
from streamd.camera.feed import Machine
from streamd.camera.pool import DecodePool
from streamd.config.types import CameraConfig, Config
from streamd.engine import Engine
from streamd.errors import DeviceError
from streamd.histogram import DurationHistogram
from streamd.records import CameraState, Event, Record, Result
from streamd.sinks.base import Ack
from streamd.types import DropReason, FrameRef, Scores
from streamd.worker.protocol import Changed, Counts, Released
from streamd.worker.results import result_of

log = structlog.get_logger(__name__)

_START_APART_S = 0.02
_DECODER_START_S = 0.07
"""The driver starts one decoder after the other, about 60 ms each, whichever process they are in."""
_FLUSH_SHARE = 0.25
"""Part of the time for stopping that is kept for the sinks."""


class Worker:
    """`load`, `start`, then `stop`; all on the loop of the process."""

    def __init__(
        self,
        config: Config,
        cameras: Sequence[str],
        *,
        workers: int,
        on_change: Callable[[Changed | Released], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._config = config
        self._names = cameras
        self._pending: tuple[Config, Sequence[str]] | None = None
        """An update that came while models loaded."""
        self._wanted: dict[str, CameraConfig] = {}
        """What each camera should run with; `model` is filled in."""
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._has_started = self._is_stopping = False
        self._workers = workers
        self._on_change = on_change
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._sink = sinks.build(
            config,
            written=self._written,
            dropped=self._dropped,
            lost=self._lost,
            found=self._found,
            spool=sinks.spool_place(config, owns=set(cameras).__contains__, share=0.9 / workers),
        )
        self._cameras: dict[str, Camera] = {}
        self._models: dict[str, str] = {}
        """The models of these, by camera."""
        self._runs: set[asyncio.Task[None]] = set()
        self._latency = DurationHistogram()

    @property
    def device_name(self) -> str:
        """What `Ready` says: `cpu`, or the GPU's name."""
        return "cpu" if self._device.type == "cpu" else torch.cuda.get_device_name(self._device)

    @property
    def failure(self) -> BaseException | None:
        """What the engine died of."""
        return self._engine.failure

    async def load(self) -> None:
        """Load the models and warm them up, off the loop. Raises ModelError, DeviceError."""
        await asyncio.to_thread(self._load)

    def _load(self) -> None:
        config = self._config
        self._device = device = _device(config.engine.device)
        wanted = {config.model_of(name) for name in self._names}
        loaded = {name: models.load(name, config.models[name], device=device) for name in sorted(wanted)}
        self._labels = {name: model.labels for name, model in loaded.items()}
        self._engine = Engine(
            loaded,
            top_k={name: config.models[name].top_k for name in loaded},
            config=config.engine,
            device=device,
            on_scores=self._scored,
            on_drop=self._frames_dropped,
        )
        count = self._decode_threads() if config.engine.decode_threads == "auto" else config.engine.decode_threads
        self._pool = DecodePool(count, prepare=lambda: _prepare_decode_thread(device), on_idle=self._engine.gathering.flush)
        self._machine = Machine(self._engine, self._pool, device)
        self._engine.start(on_failure=self._engine_died)

    def _decode_threads(self) -> int:
        """A thread that waits for NVDEC looks every 0.2 ms whether the frame is there: no more of them than keep the decoders busy."""
        if self._device.type == "cpu":
            return len(os.sched_getaffinity(0))
        return 4 if any(self._config.cameras[name].is_live for name in self._names) else 2

    def start(self) -> None:
        """Start the sinks and the cameras."""
        self._pool.start()
        self._runs.add(self._loop.create_task(self._sink.start()))
        self._has_started = True
        self.update(*(self._pending or (self._config, self._names)))

    def update(self, config: Config, names: Sequence[str]) -> None:
        """From now on run these cameras of `config`: see clause 8 in main.py. Before `start` it is only noted."""
        if not self._has_started:
            self._pending = config, names
            return
        before = self._wanted.keys() | set(self._names)
        self._config, self._names = config, names
        for name in before - set(names):
            self._wanted.pop(name, None)
            if name in self._lives:
                self._cameras[name].stop()
            else:
                self._release(name)
        start_after_s = 0.0
        for name in names:
            camera = config.cameras[name].model_copy(update={"model": config.model_of(name)})
            if self._wanted.get(name) == camera:
                continue
            self._wanted[name] = camera
            if name in self._lives:
                self._cameras[name].stop()
                continue
            self._lives[name] = self._loop.create_task(self._live(self._new_camera(name), start_after_s))
            self._runs.add(self._lives[name])
            start_after_s += self._apart_s(camera)

    def _new_camera(self, name: str) -> Camera:
        """With the configuration that is wanted now; the counts of the one before go on."""
        wanted = self._wanted[name]
        camera = Camera(name, wanted, model=str(wanted.model), machine=self._machine, on_change=self._changed)
        if name in self._cameras:
            camera.ledger = self._cameras[name].ledger
        self._cameras[name] = camera
        self._models[name] = str(wanted.model)
        return camera

    async def _live(self, camera: Camera, start_after_s: float) -> None:
        """One camera, with one configuration after the other, until it is done or not wanted any more."""
        name = camera.name
        try:
            while True:
                await camera.run(start_after_s=start_after_s)
                if self._is_stopping or self._wanted.get(name) is camera.config:
                    return
                if name not in self._wanted:
                    self._release(name)
                    return
                camera, start_after_s = self._new_camera(name), 0.0
        finally:
            self._runs.discard(self._lives.pop(name))

    def _release(self, name: str) -> None:
        """Nothing of it is in flight any more."""
        self._cameras.pop(name, None)
        self._models.pop(name, None)
        self._on_change(Released(name))

    def _apart_s(self, camera: CameraConfig) -> float:
        """From one camera's start to the next one's."""
        starts_decoder = self._device.type == "cuda" and camera.decode == "all"  # key frames share few decoders
        return _DECODER_START_S * self._workers if starts_decoder else _START_APART_S

    async def stop(self, *, deadline_s: float) -> None:
        """Let everything that was received go through, until the monotonic time `deadline_s` at the latest."""
        self._is_stopping = True
        for camera in self._cameras.values():
            camera.stop()
        total_s = max(0.0, deadline_s - time.monotonic())
        _, late = await asyncio.wait(set(self._runs), timeout=total_s * (1 - _FLUSH_SHARE))
        for run in late:
            run.cancel()
        if late:
            log.warning("stopping_late", cameras=len(late))
            await asyncio.wait(late, timeout=0.5)
        unwritten = await self._sink.close(timeout_s=max(0.1, deadline_s - time.monotonic() - 0.3))
        if unwritten:
            log.error("results_lost", count=unwritten, hint="the sinks were away while the daemon stopped")

    def counts(self) -> Counts:
        """The heartbeat."""
        return Counts(
            ledgers={name: camera.ledger.snapshot() for name, camera in self._cameras.items()},
            sink_queue=self._sink.queued,
            batches=self._engine.batches,
            latency=self._latency.counts,
            cpu_s=time.process_time(),
            at_ns=time.monotonic_ns(),
            shared_decoders=len(self._machine.keyframes),
        )

    def _changed(self, state: CameraState, event: Event | None) -> None:
        self._on_change(Changed(state=state, event=event))

    # --- on the engine's and decode threads

    def _engine_died(self) -> None:
        self._loop.call_soon_threadsafe(self._on_failure)

    def _scored(self, scores: Sequence[Scores]) -> None:
        self._loop.call_soon_threadsafe(self._publish, scores)

    def _frames_dropped(self, refs: Sequence[FrameRef], reason: DropReason) -> None:
        for ref in refs:
            self._cameras[ref.camera].ledger.dropped(reason)

    # --- on the loop

    def _publish(self, scores: Sequence[Scores]) -> None:
        if self._engine.failure is not None:
            return
        for score in scores:
            name = self._models[score.ref.camera]
            ledger = self._cameras[score.ref.camera].ledger
            result = result_of(
                score,
                model=name,
                labels=self._labels[name],
                min_confidence=self._config.models[name].min_confidence,
                dropped=ledger.take_missed(),
            )
            self._sink.put(result)

    def _written(self, acks: Sequence[Ack]) -> None:
        for record, waited_ns in acks:
            if waited_ns is not None and isinstance(record, Result):
                self._latency.add(record.latency_ms.total / 1e3 + waited_ns / 1e9)
        for name, count in _per_camera(ack.record for ack in acks).items():
            self._cameras[name].ledger.published(count)

    def _dropped(self, records: Sequence[Record]) -> None:
        for name, count in _per_camera(records).items():
            self._cameras[name].ledger.dropped(DropReason.SINK_FULL, count)

    def _found(self, camera: str | None, count: int) -> None:
        """Earlier processes left results of a camera in the spool: they are in flight again."""
        if camera in self._cameras:
            self._cameras[camera].ledger.received(count)

    def _lost(self, camera: str | None, count: int, reason: DropReason) -> None:
        if camera in self._cameras:
            self._cameras[camera].ledger.dropped(reason, count)


def _per_camera(records: Iterable[Record]) -> Counter[str]:
    return Counter(record.camera for record in records if isinstance(record, Result))


def _prepare_decode_thread(device: torch.device) -> None:
    """Its own CUDA stream; and no torch threads of its own, which would fight for the cores: 489 ms instead of 2 for some frames."""
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.set_stream(torch.cuda.Stream(device))


def _device(wanted: str) -> torch.device:
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError("engine.device is cuda, but torch finds no GPU; check the driver with nvidia-smi, or set device: auto")
    return torch.device("cuda", 0)
