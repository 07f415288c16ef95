"""Which worker gets which cameras, on which GPU. `place` is pure; `visible_gpus` asks the driver, without torch, and loads no CUDA.

Nothing is known of a camera before its first connection, so its load follows from its configuration alone: `frames_per_s`. Cameras are
taken in the order of their load, the heaviest first, and each goes to the GPU, and there to the worker, that has least.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamd.config.types import CameraConfig, Config, EngineConfig
from streamd.errors import ConfigError, Problem

WORKERS_PER_GPU = 4
"""Measured on one H200: 4 processes of 8 streams reach the decoders' own limit, and more bring nothing. Each takes 0.6 GB of the GPU."""
WORKER_FRAMES_PER_S = 1000
"""Half of what one process reached there (2,130 of 1080p, ResNet-50): then its interpreter lock holds it back."""

_CAMERA_FPS = 30.0
"""Of a live camera. `fps` in its file changes nothing: the frames that are not classified are decoded too."""
_FILE_FPS = 760.0
"""Of a file that goes as fast as it can: one NVDEC session of 1080p H.264."""
_KEYFRAMES_SHARE = 1 / 6
"""Of what a camera costs in a worker, in key-frame mode: each packet is read all the same, but one in 30 is decoded."""

_DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that may be used."""

    name: str
    """In the words of CUDA_VISIBLE_DEVICES: an index, or a UUID."""
    uuid: str = ""
    """Empty where it is not known."""

    def is_called(self, name: str) -> bool:
        """Whether `name` is this one: its index, or its UUID, which may be cut short as for CUDA."""
        return name == self.name or (name.startswith(("GPU-", "MIG-")) and any(own.startswith(name) for own in (self.name, self.uuid)))


@dataclass(frozen=True, slots=True)
class Placement:
    """The share of one worker."""

    worker: str
    cameras: tuple[str, ...]
    gpu: str | None
    """What its CUDA_VISIBLE_DEVICES must say; None where there is no choice to make."""


def frames_per_s(camera: CameraConfig) -> float:
    """What `camera` costs: frames a second that are decoded, as far as its configuration tells."""
    fps = _CAMERA_FPS if camera.is_live else _FILE_FPS
    return fps * _KEYFRAMES_SHARE if camera.decode == "keyframes" else fps


def place(config: Config, *, gpus: Sequence[Gpu]) -> list[Placement]:
    """Each camera in one worker; no worker without a camera. A pinned camera's GPU has a worker, also where `engine.workers` is less.

    Raises ConfigError, which names the camera, where one is pinned to a GPU that is not there.
    """
    engine = config.engine
    usable = _usable(config, gpus)
    loads = {name: frames_per_s(camera) for name, camera in config.cameras.items()}
    pinned = _pinned(config, usable)
    bins = _used(usable, pinned, engine) or [Gpu("")]
    by_gpu = _spread(loads, len(bins), fixed={name: bins.index(gpu) for name, gpu in pinned.items()})
    placements: list[Placement] = []
    for gpu, share, count in zip(bins, by_gpu, _workers(engine, by_gpu, loads, on_gpu=bool(usable)), strict=True):
        for cameras in _spread({name: loads[name] for name in share}, count):
            placements.append(Placement(f"w{len(placements)}", tuple(cameras), gpu.name if len(usable) > 1 else None))
    return placements


def pinned_gpus(config: Config, *, gpus: Sequence[Gpu]) -> dict[str, str]:
    """By camera, the GPU that it names, in the words of a Placement. Raises ConfigError where there is no such GPU."""
    return {name: gpu.name for name, gpu in _pinned(config, _usable(config, gpus)).items()} if len(gpus) > 1 else {}


def _usable(config: Config, gpus: Sequence[Gpu]) -> list[Gpu]:
    return [] if config.engine.device == "cpu" else list(gpus)


def _pinned(config: Config, gpus: Sequence[Gpu]) -> dict[str, Gpu]:
    """The GPUs of the cameras that name one."""
    pinned, problems = {}, []
    for name, camera in config.cameras.items():
        if camera.gpu is None:
            continue
        found = [gpu for gpu in gpus if gpu.is_called(str(camera.gpu))]
        if len(found) == 1:
            pinned[name] = found[0]
            continue
        known = ", ".join(f"{gpu.name} ({gpu.uuid})" if gpu.uuid and gpu.uuid != gpu.name else gpu.name for gpu in gpus)
        wrong = f"{camera.gpu} may mean several GPUs" if found else f"there is no GPU {camera.gpu}"
        problems.append(Problem(f"camera {name}", f"{wrong}; {f'there are {known}' if known else 'none can be used here'}", path="gpu"))
    if problems:
        raise ConfigError(*problems)
    return pinned


def _used(gpus: Sequence[Gpu], pinned: Mapping[str, Gpu], engine: EngineConfig) -> list[Gpu]:
    """All of them, unless there are to be fewer workers; those that cameras are pinned to come first."""
    ordered = sorted(gpus, key=lambda gpu: gpu not in pinned.values())
    return ordered if engine.workers == "auto" else ordered[: max(engine.workers, len(set(pinned.values())))]


def _workers(engine: EngineConfig, by_gpu: Sequence[Sequence[str]], loads: Mapping[str, float], *, on_gpu: bool) -> list[int]:
    """How many for each share of cameras, one for each camera at most."""
    totals = [sum(loads[name] for name in share) for share in by_gpu]
    if engine.workers == "auto":
        wanted = [min(WORKERS_PER_GPU, math.ceil(total / WORKER_FRAMES_PER_S)) if on_gpu else 1 for total in totals]
        return [min(count, len(share)) for count, share in zip(wanted, by_gpu, strict=True)]
    counts = [min(1, len(share)) for share in by_gpu]
    while sum(counts) < engine.workers:
        room = [place for place, share in enumerate(by_gpu) if counts[place] < len(share)]
        if not room:
            break
        counts[max(room, key=lambda place: totals[place] / counts[place])] += 1
    return counts


def _spread(loads: Mapping[str, float], count: int, *, fixed: Mapping[str, int] | None = None) -> list[list[str]]:
    """The longest first, each to the one of `count` that has least; `fixed` ones to their place. In the order of `loads` within each."""
    places = dict(fixed or {})
    totals = [sum(loads[name] for name, at in places.items() if at == place) for place in range(count)]
    for name in sorted(loads, key=lambda name: -loads[name]):
        if name not in places:
            places[name] = min(range(count), key=totals.__getitem__)
            totals[places[name]] += loads[name]
    return [[name for name in loads if places[name] == place] for place in range(count)]


def visible_gpus(environ: Mapping[str, str]) -> list[Gpu]:
    """The GPUs that CUDA would use; none where there is no driver."""
    uuids = _uuids()
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or not uuids:
        return [Gpu(str(index), uuid) for index, uuid in enumerate(uuids)]
    gpus: list[Gpu] = []
    for name in map(str.strip, chosen.split(",")):
        # CUDA takes the list up to the first name that is no GPU; people write -1 or nothing for "none".
        if name.startswith(("GPU-", "MIG-")):
            gpus.append(Gpu(name, next((uuid for uuid in uuids if uuid.startswith(name)), name)))
        elif name.isdecimal() and int(name) < len(uuids):
            gpus.append(Gpu(name, uuids[int(name)]))
        else:
            break
    return gpus


def _uuids() -> list[str]:
    """Of all GPUs, in the driver's order: by NVML where nvidia-ml-py is installed, else by what the driver lists in /proc."""
    try:
        import pynvml  # noqa: PLC0415 - comes with the extra `gpu`
    except ImportError:
        return [_listed_uuid(folder) for folder in sorted(_DRIVER_GPUS.iterdir())] if _DRIVER_GPUS.is_dir() else []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _listed_uuid(folder: Path) -> str:
    try:
        found = re.search(r"GPU UUID:\s*(GPU-\S+)", (folder / "information").read_text())
    except OSError:
        return ""
    return found[1] if found else ""
