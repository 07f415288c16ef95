"""What a changed configuration means for one that runs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamd.config.types import Config
from streamd.daemon.placement import Placement, frames_per_s

RESTART = "restart streamd to apply"


@dataclass(frozen=True, slots=True)
class Plan:
    """From one configuration to the next one."""

    config: Config
    """What is in effect from now on: the new cameras and models; of the rest what runs already."""
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    not_applied: tuple[str, ...]
    """Sections that need a restart."""

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.removed or self.not_applied)

    def __str__(self) -> str:
        counts = f"{len(self.added)} added, {len(self.changed)} changed, {len(self.removed)} removed"
        return f"{counts}; {RESTART}: {', '.join(self.not_applied)}" if self.not_applied else counts


def plan(running: Config, new: Config) -> Plan:
    """`models` that are no longer there stay loaded: frames of a camera that goes may still need theirs."""
    not_applied = [name for name in ("redis", "jsonl", "spool", "state_dir", "engine") if getattr(running, name) != getattr(new, name)]
    not_applied += [f"models.{name}" for name, model in new.models.items() if running.models.get(name, model) != model]
    before, after = with_models(running), with_models(new)
    return Plan(
        config=after.model_copy(
            update={
                "redis": running.redis,
                "jsonl": running.jsonl,
                "spool": running.spool,
                "state_dir": running.state_dir,
                "engine": running.engine,
                "models": {**new.models, **running.models},
            }
        ),
        added=tuple(name for name in after.cameras if name not in before.cameras),
        changed=tuple(name for name, camera in after.cameras.items() if before.cameras.get(name, camera) != camera),
        removed=tuple(name for name in before.cameras if name not in after.cameras),
        not_applied=tuple(not_applied),
    )


def with_models(config: Config) -> Config:
    """`config` with the model of each camera written out: which one is meant by none depends on how many there are."""
    cameras = {name: camera.model_copy(update={"model": config.model_of(name)}) for name, camera in config.cameras.items()}
    return config.model_copy(update={"cameras": cameras})


def home_of(
    camera: str, config: Config, placements: Collection[Placement], *, models: Mapping[str, Collection[str]], gpu: str | None
) -> Placement | None:
    """The worker with the least to do that has the camera's model loaded, on `gpu` if that is given; None where a new one is needed.

    `models` are the loaded ones, by worker.
    """
    model = config.model_of(camera)
    fitting = [one for one in placements if model in models.get(one.worker, ()) and gpu in (None, one.gpu)]
    return min(
        fitting, key=lambda one: sum(frames_per_s(config.cameras[name]) for name in one.cameras if name in config.cameras), default=None
    )
