"""The workers that run, and which camera is where. Cameras come, change and go while the others stay untouched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from streamd.config.redaction import reveal
from streamd.config.types import Config
from streamd.daemon.cameras import DONE, Cameras
from streamd.daemon.placement import Gpu, Placement, pinned_gpus, place
from streamd.daemon.plan import Plan, home_of
from streamd.daemon.supervisor import Supervisor
from streamd.worker.protocol import Update


class Fleet:
    """`config` is what is in effect. A camera that goes is `leaving` until its worker has let go of it; then it is placed anew, or gone."""

    def __init__(self, config: Config, cameras: Cameras, *, gpus: Sequence[Gpu], new: Callable[[Placement], Supervisor]) -> None:
        """Raises ConfigError where a camera names a GPU that is not there."""
        self.config = config
        self._cameras = cameras
        self._gpus = gpus
        self._new = new
        self._models: dict[str, set[str]] = {}
        """Those that each worker's process has loaded."""
        self._leaving: dict[str, str] = {}
        """The worker that still has the camera, by camera."""
        self._launch: Callable[[Supervisor], None] | None = None
        placements = place(config, gpus=gpus)
        self.workers = [new(placement) for placement in placements]
        self._count = len(placements)
        for placement in placements:
            self.started(placement, placement.cameras)

    def launch_with(self, launch: Callable[[Supervisor], None]) -> None:
        """Begin all workers' lives, and from now on those of added ones."""
        self._launch = launch
        for worker in self.workers:
            launch(worker)

    def started(self, placement: Placement, cameras: Sequence[str]) -> None:
        """A process begins with these cameras, so it loads their models."""
        self._models[placement.worker] = {self.config.model_of(name) for name in cameras}

    def over(self, worker: Supervisor) -> None:
        """Its life ended: it will have no other process."""
        self.workers.remove(worker)

    def check(self, config: Config) -> None:
        """Raises ConfigError where a camera names a GPU that is not there."""
        pinned_gpus(config, gpus=self._gpus)

    def apply(self, plan: Plan) -> None:
        self.config = plan.config
        pinned = pinned_gpus(plan.config, gpus=self._gpus)
        touched: set[str] = set()
        for name in (*plan.removed, *plan.changed):
            worker = self._worker_of(name)
            if worker is None:
                continue  # it is leaving already, or the worker's life is over
            touched.add(worker.placement.worker)
            stays = name in plan.changed and self._fits(name, worker.placement, pinned.get(name))
            if stays and self._cameras.states[name].phase in DONE:
                self._cameras.take_up(plan.config, name)
            if not stays:
                self._leaving[name] = worker.placement.worker
                self._set(worker, [other for other in worker.placement.cameras if other != name])
        for name in touched:
            self._tell(name)
        for name in (*plan.removed, *plan.changed, *plan.added):
            if self._worker_of(name) is None and not self._is_held(name):
                self.released(name)

    def let_go(self, placement: Placement, name: str) -> None:
        """A worker let go of a camera; it also says so of those that were done."""
        if self._leaving.get(name) == placement.worker:
            self.released(name)

    def released(self, name: str) -> None:
        """No worker has the camera any more: place it, or forget it."""
        self._leaving.pop(name, None)
        if name not in self.config.cameras:
            if name in self._cameras.states:
                self._cameras.remove(name)
            return
        self._cameras.take_up(self.config, name)
        gpu = pinned_gpus(self.config, gpus=self._gpus).get(name)
        home = home_of(name, self.config, [worker.placement for worker in self.workers], models=self._models, gpu=gpu)
        if home is not None:
            worker = next(worker for worker in self.workers if worker.placement is home)
            self._set(worker, [*home.cameras, name])
            self._tell(home.worker)
            return
        placement = Placement(f"w{self._count}", (name,), gpu or self._least_used_gpu())
        self._count += 1
        worker = self._new(placement)
        self.workers.append(worker)
        self.started(placement, placement.cameras)
        if self._launch is not None:
            self._launch(worker)

    def worker_died(self, worker: str) -> None:
        """What it was letting go of, it has let go."""
        for name in [name for name, holder in self._leaving.items() if holder == worker]:
            self.released(name)

    def _is_held(self, name: str) -> bool:
        holder = next((worker for worker in self.workers if worker.placement.worker == self._leaving.get(name)), None)
        return holder is not None and holder.has_process

    def _fits(self, name: str, placement: Placement, gpu: str | None) -> bool:
        return self.config.model_of(name) in self._models[placement.worker] and gpu in (None, placement.gpu)

    def _worker_of(self, name: str) -> Supervisor | None:
        return next((worker for worker in self.workers if name in worker.placement.cameras), None)

    def _least_used_gpu(self) -> str | None:
        names = [gpu.name for gpu in self._gpus] if len(self._gpus) > 1 and self.config.engine.device != "cpu" else []
        used = [worker.placement.gpu for worker in self.workers]
        return min(names, key=used.count, default=None)

    def _set(self, worker: Supervisor, cameras: Sequence[str]) -> None:
        worker.placement = replace(worker.placement, cameras=tuple(cameras))

    def _tell(self, name: str) -> None:
        worker = next(worker for worker in self.workers if worker.placement.worker == name)
        worker.tell(Update(config=reveal(self.config), cameras=self._cameras.unfinished(worker.placement.cameras)))
