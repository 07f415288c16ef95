"""What the demo will run, and why: device, cameras, rate, Redis; and the configuration folder that says so. Starts nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamd.daemon.placement import visible_gpus
from streamd.demo import redis_server
from streamd.demo.clips import FPS
from streamd.demo.photographs import PHOTOGRAPHS, Photograph
from streamd.demo.redis_server import RedisAddress

PREFIX = "streamd-demo"
MODEL = "efficientnet-lite0"

_CPU_RESULTS_PER_S = 12.0
"""For all cameras together: two busy cores classify about 25 pictures a second, and are to have some time left."""
_CPU_MOST_FPS = 2.0
_SHUTDOWN_S = 3

_MAIN = """\
redis:
  url: ${{STREAMD_REDIS_URL}}
  username: ${{STREAMD_REDIS_USERNAME:-}}
  password: ${{STREAMD_REDIS_PASSWORD:-}}
  prefix: {prefix}
  max_entries: 1000

spool: null # nothing outlives the demo

models:
  imagenet:
    builtin: {model}

engine:
  device: {device}
  shutdown_timeout: {shutdown_s}s

camera_defaults:
  fps: {fps:g}
  realtime: true # these are files that play like cameras
  loop: true
"""


@dataclass(frozen=True, slots=True)
class DemoCamera:
    name: str
    photograph: Photograph


@dataclass(frozen=True, slots=True)
class Plan:
    device: str
    """`auto`, `cpu` or `cuda`, as the engine is told."""
    device_reason: str
    fps: float
    """Pictures a second that are classified of each camera."""
    cameras: tuple[DemoCamera, ...]
    redis: RedisAddress | None
    """The one that was named; None: a server of our own."""
    redis_binary: str | None
    """Of that server."""

    @property
    def redis_cli(self) -> str:
        return redis_server.find_cli(self.redis_binary)

    def write(self, folder: Path, clips: Mapping[str, Path]) -> None:
        """The configuration: streamd.yaml and a file a camera. `clips` are by photograph."""
        (folder / "cameras").mkdir(parents=True)
        main = _MAIN.format(prefix=PREFIX, model=MODEL, device=self.device, fps=self.fps, shutdown_s=_SHUTDOWN_S)
        (folder / "streamd.yaml").write_text(main, encoding="utf-8")
        for camera in self.cameras:
            path = str(clips[camera.photograph.name]).replace("${", "$${")
            (folder / "cameras" / f"{camera.name}.yaml").write_text(f"url: {json.dumps(path)}\n", encoding="utf-8")

    def environ(self, redis: RedisAddress, *, temporary: Path) -> dict[str, str]:
        """The daemon's environment: credentials are not written to a file, and torch's own temporary files go to the folder `temporary`."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith("STREAMD_REDIS_")}
        theirs = {"STREAMD_REDIS_URL": redis.url, "STREAMD_REDIS_USERNAME": redis.username, "STREAMD_REDIS_PASSWORD": redis.password}
        return mine | {"TMPDIR": str(temporary)} | {name: value for name, value in theirs.items() if value is not None}


def make(*, device: str, cameras: int, environ: Mapping[str, str]) -> Plan:
    """Decide. Raises DemoUnavailable where there is no Redis."""
    redis = redis_server.named(environ)
    gpus = visible_gpus(environ)
    on_cpu = device == "cpu" or (device == "auto" and not gpus)
    if device != "auto":
        reason = "as asked"
    elif on_cpu:
        reason = "the CPU: no NVIDIA driver here"
    else:
        reason = f"{len(gpus)} NVIDIA GPU{'s' if len(gpus) > 1 else ''} here"
    return Plan(
        device=device,
        device_reason=reason,
        fps=min(_CPU_MOST_FPS, round(_CPU_RESULTS_PER_S / cameras, 2)) if on_cpu else FPS,
        cameras=tuple(_camera(number) for number in range(cameras)),
        redis=redis,
        redis_binary=None if redis else redis_server.find_binary(),
    )


def _camera(number: int) -> DemoCamera:
    photograph = PHOTOGRAPHS[number % len(PHOTOGRAPHS)]
    time = number // len(PHOTOGRAPHS) + 1
    return DemoCamera(photograph.name if time == 1 else f"{photograph.name}-{time}", photograph)
