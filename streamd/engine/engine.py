"""The engine of a worker: slots for preprocessed frames, batches across cameras, and the one thread that runs the models.

Crossings between threads, all of them here: decode threads take slots and submit samples under `_lock`; the engine thread forms batches
under the same lock and runs them outside of it; scores and drops leave through the callbacks, on the engine's or the caller's thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from streamd import preprocess
from streamd.config.types import AUTO_MAX_BATCH, EngineConfig
from streamd.engine.batcher import Batcher
from streamd.engine.cuda_runner import CudaRunner
from streamd.engine.intake import Gathering, Intake
from streamd.engine.runner import CpuRunner, Ranked, Runner
from streamd.engine.slots import SlotPool
from streamd.models import LoadedModel
from streamd.types import Batch, DropReason, FrameRef, Sample, Scores

_GATHER_FRAMES = 8
"""On a GPU, that many frames share a launch at most: 5.4 us of its time each, instead of 22 alone; 32 would take 4.5."""

_FILE_PATIENCE = 5
"""Frames of a file wait so many times longer for their batch to fill: nobody waits for them, and fuller batches cost less."""

OnScores = Callable[[Sequence[Scores]], None]
OnDrop = Callable[[Sequence[FrameRef], DropReason], None]


@dataclass(slots=True)
class Lane:
    """All that belongs to one model."""

    model: LoadedModel
    pool: SlotPool
    batcher: Batcher
    runner: Runner
    preprocessor: preprocess.Preprocessor
    under_way: deque[tuple[Batch, object]] = field(default_factory=deque)


class Engine:
    """Runs from `start` to `stop`. `on_scores` and `on_drop` are called from its threads and must not block."""

    def __init__(
        self,
        models: Mapping[str, LoadedModel],
        *,
        top_k: Mapping[str, int],
        config: EngineConfig,
        device: torch.device,
        on_scores: OnScores,
        on_drop: OnDrop,
    ) -> None:
        self._config = config
        self._max_batch = AUTO_MAX_BATCH[device.type] if config.max_batch == "auto" else config.max_batch
        self._device = device
        self._on_scores = on_scores
        self._on_drop = on_drop
        self._lock = threading.Condition()
        self._stopping = False
        self._waiting_for_room: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name="engine")
        self.failure: BaseException | None = None
        self.batches = 0
        self.lanes = {name: self._new_lane(model, top_k[name]) for name, model in models.items()}
        self.gathering = Gathering(self, limit=1 if device.type == "cpu" else _GATHER_FRAMES)

    def _new_lane(self, model: LoadedModel, top_k: int) -> Lane:
        config, on_gpu = self._config, self._device.type == "cuda"
        height, width = model.input.crop
        max_wait_ns = int(config.max_wait * 1e9)
        dtype = torch.float32 if model.precision == "fp32" else torch.float16  # bf16 has too few bits for 256 levels
        pool = SlotPool(config.slots, height=height, width=width, dtype=dtype, device=self._device)
        runner: Runner = CudaRunner(model, pool, top_k=top_k, max_batch=self._max_batch) if on_gpu else CpuRunner(model, pool, top_k=top_k)
        return Lane(
            model=model,
            pool=pool,
            batcher=Batcher(max_batch=self._max_batch, max_wait_ns=max_wait_ns, file_wait_ns=_FILE_PATIENCE * max_wait_ns),
            runner=runner,
            preprocessor=preprocess.create(model.input, self._device),
        )

    def start(self, *, on_failure: Callable[[], None]) -> None:
        """Warm the models up, then begin. `on_failure` is called from the engine's thread if it dies; `failure` then says of what."""
        for lane in self.lanes.values():
            lane.runner.warm_up()
        self._on_failure = on_failure
        self._thread.start()

    def stop(self) -> None:
        """Finish what was submitted, then end the thread. Who waits for room is released, and what is submitted later is dropped."""
        with self._lock:
            self._stopping = True
        self._wake_all()
        self._thread.join()

    def intake(self, camera: str, model: str, *, max_age_s: float | None, rank: int = 0) -> Intake:
        """The way in for a camera's frames."""
        max_age_ns = None if max_age_s is None else int(max_age_s * 1e9)
        return Intake(self, self.lanes[model], camera, max_age_ns, rank)

    # --- called by decode threads, through Intake

    def has_room(self, intake: Intake, wake: Callable[[], None]) -> bool:
        """See Intake.has_room; for files. A file may hold a batch's worth of slots, and half of the pool stays for the others."""
        with self._lock:
            lane = intake.lane
            if self._is_closed or (lane.pool.free > lane.pool.count // 2 and lane.batcher.waiting(intake.camera) < self._max_batch):
                return True
            self._waiting_for_room.append(wake)
            return False

    def take_slot(self, intake: Intake) -> int | None:
        """See Intake.take_slot. A file waits here when its decoder gave more frames at once than there was room for."""
        evicted: Sample | None = None
        with self._lock:
            pool = intake.lane.pool
            if intake.max_age_ns is None:
                while not pool.free and not self._is_closed:
                    self._lock.wait()
            if self._is_closed:
                return None
            if not pool.free and (evicted := intake.lane.batcher.evict(intake.rank)) is not None:
                pool.give_back(evicted.slot)
            slot = pool.take()
        if evicted is not None:
            intake.lane.pool.await_filled(evicted.slot)
            self._on_drop([evicted.ref], DropReason.OVERLOAD)
        return slot

    def take_slots(self, intake: Intake, count: int) -> list[int]:
        """See Intake.take_slots. Half of the pool stays for the others, as in `has_room`."""
        first = self.take_slot(intake)
        if first is None:
            return []
        with self._lock:
            pool = intake.lane.pool
            spare = min(count - 1, max(0, pool.free - pool.count // 2))
            return [first, *(slot for _ in range(spare) if (slot := pool.take()) is not None)]

    def submit(self, lane: Lane, samples: Sequence[Sample]) -> None:
        """See Intake.submit."""
        with self._lock:
            is_late = self._is_closed
            if not is_late:
                is_new = not len(lane.batcher)
                for sample in samples:
                    lane.batcher.put(sample)
                if is_new or lane.batcher.due_ns() == 0:  # else the engine knows already when it is due
                    self._lock.notify_all()
        if is_late:
            self._drop(lane, samples, DropReason.SHUTDOWN)

    def refuse(self, lane: Lane, ref: FrameRef, slot: int) -> None:
        """A frame that could not be preprocessed."""
        self.give_back(lane, [slot])
        self._on_drop([ref], DropReason.DECODE_ERROR)

    def give_back(self, lane: Lane, slots: Sequence[int]) -> None:
        """Free slots, and wake who waits for room."""
        with self._lock:
            for slot in slots:
                lane.pool.give_back(slot)
        self._wake_all()

    @property
    def _is_closed(self) -> bool:
        return self._stopping or self.failure is not None

    def _wake_all(self) -> None:
        """Whoever waits, looks again: the engine's thread, those who wait for a slot, and files without room."""
        with self._lock:
            waiting, self._waiting_for_room = self._waiting_for_room, []
            self._lock.notify_all()
        for wake in waiting:
            wake()

    # --- the engine's own thread

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the worker must hear of it: after a CUDA fault nothing may be published
            with self._lock:
                self.failure = error
            self._wake_all()
            self._on_failure()

    def _step(self) -> bool:
        """Launch what is due; if nothing is, collect the oldest batch under way, or wait. False at the end."""
        launched = False
        for lane in self.lanes.values():
            if not len(lane.batcher):
                continue
            with self._lock:
                now_ns = time.monotonic_ns()
                stale = lane.batcher.expire(now_ns)
                shed = lane.batcher.shed(now_ns)
                batch = lane.batcher.take(now_ns, flush=self._stopping)
            self._drop(lane, stale, DropReason.STALE)
            self._drop(lane, shed, DropReason.OVERLOAD)
            if batch is not None:
                lane.under_way.append((batch, lane.runner.launch(batch)))
                launched = True
                if len(lane.under_way) >= lane.runner.depth:
                    self._collect(lane)
        if launched:
            return True
        busy = [lane for lane in self.lanes.values() if lane.under_way]
        for lane in busy:
            self._collect(lane)
        if busy:
            return True
        return self._wait()

    def _wait(self) -> bool:
        """Until a batch is due or something changes. False when stopping and empty."""
        with self._lock:
            dues = [due for lane in self.lanes.values() if (due := lane.batcher.due_ns()) is not None]
            if self._stopping:
                return bool(dues)
            timeout_s = None if not dues else (min(dues) - time.monotonic_ns()) / 1e9
            if timeout_s is None or timeout_s > 0:
                self._lock.wait(timeout_s)
        return True

    def _collect(self, lane: Lane) -> None:
        batch, ticket = lane.under_way.popleft()
        ranked = lane.runner.collect(ticket)
        inferred_ns = time.monotonic_ns()
        self.batches += 1
        with self._lock:
            lane.batcher.took(batch, inferred_ns)
        self.give_back(lane, [sample.slot for sample in batch.samples])
        self._on_scores(_scores(batch, ranked, inferred_ns))

    def _drop(self, lane: Lane, samples: Sequence[Sample], reason: DropReason) -> None:
        if samples:
            for sample in samples:
                lane.pool.await_filled(sample.slot)
            self.give_back(lane, [sample.slot for sample in samples])
            self._on_drop([sample.ref for sample in samples], reason)


def _scores(batch: Batch, ranked: Ranked, inferred_ns: int) -> list[Scores]:
    return [
        Scores(
            ref=sample.ref,
            classes=tuple(classes),
            probabilities=tuple(probabilities),
            ready_ns=sample.ready_ns,
            batched_ns=batch.formed_ns,
            inferred_ns=inferred_ns,
            batch_size=len(batch.samples),
        )
        for sample, classes, probabilities in zip(batch.samples, ranked.classes, ranked.probabilities, strict=True)
    ]
