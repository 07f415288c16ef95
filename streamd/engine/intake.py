"""A camera's way into the engine, and how the frames of several cameras share the launch that preprocesses them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamd.types import Frame, FrameRef, Sample

if TYPE_CHECKING:
    from torch import Tensor

    from streamd.engine.engine import Engine, Lane

_GATHER_NS = 2_000_000
"""How long a decoded frame waits for others at most, while its thread has more to decode."""


@dataclass(slots=True, eq=False)
class Intake:
    """A camera's way into the engine. Used by one decode thread at a time."""

    engine: Engine
    lane: Lane
    camera: str
    max_age_ns: int | None
    """Live cameras: how old a frame may be. None: a file, whose frames wait."""
    rank: int = 0
    """Higher ranks go first."""
    gathered: int = 0
    """Frames that were put and are not preprocessed yet: their decoder must not overwrite them."""
    failure: Exception | None = None
    """What preprocessing a frame of this camera raised."""

    def has_room(self, wake: Callable[[], None]) -> bool:
        """Whether a frame can be taken now. If not, `wake` is called once, from another thread, when it may be worth asking again.

        A live camera always has room: an older sample makes way.
        """
        return self.max_age_ns is not None or self.engine.has_room(self, wake)

    def is_stale(self, received_ns: int) -> bool:
        """Whether a frame whose packet arrived at `received_ns` is too old by now."""
        return self.max_age_ns is not None and time.monotonic_ns() - received_ns >= self.max_age_ns

    def take_slot(self) -> int | None:
        """A slot for one frame. None: no room (live camera), or the engine stops or died; the frame is then dropped by the caller."""
        return self.engine.take_slot(self)

    def take_slots(self, count: int) -> list[int]:
        """One slot or more for frames of a file, `count` at most: what may be had without waiting for more. Empty: the engine ended."""
        return self.engine.take_slots(self, count)

    def fill(self, refs: Sequence[FrameRef], slots: Sequence[int], samples: Tensor) -> None:
        """Copy samples that need no preprocessing [slots, height, width, 3] on this thread's CUDA stream, and submit them."""
        try:
            self.lane.pool.fill(slots, samples)
        except Exception:
            self.engine.give_back(self.lane, slots)
            raise
        self.submit(refs, slots)

    def put(self, frame: Frame, ref: FrameRef, slot: int) -> None:
        """Have the frame preprocessed into the slot, on this thread's CUDA stream, and submitted: now, or together with the next ones.

        Before the frame's memory is overwritten, `settle` must be called. Raises what preprocessing this frame or an earlier one raised.
        """
        self.engine.gathering.put(self, frame, ref, slot)
        self.raise_failure()

    def settle(self) -> None:
        """See that no frame of this camera waits to be preprocessed."""
        if self.gathered:
            self.engine.gathering.flush()

    def flush(self) -> None:
        """See that no frame of any camera of this thread waits to be preprocessed."""
        self.engine.gathering.flush()

    def raise_failure(self) -> None:
        """Raise what preprocessing a frame of this camera raised, once."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def submit(self, refs: Sequence[FrameRef], slots: Sequence[int]) -> None:
        """Hand filled slots over. When the engine stops or died meanwhile, the frames are dropped."""
        self.engine.submit(self.lane, [self.sample(ref, slot) for ref, slot in zip(refs, slots, strict=True)])

    def sample(self, ref: FrameRef, slot: int) -> Sample:
        """What waits for a batch."""
        expires_ns = None if self.max_age_ns is None else ref.received_ns + self.max_age_ns
        return Sample(ref, slot, time.monotonic_ns(), expires_ns, self.rank)

    def give_back(self, slot: int) -> None:
        """Return a slot that was not filled."""
        self.engine.give_back(self.lane, [slot])


@dataclass(frozen=True, slots=True)
class _Gathered:
    intake: Intake
    frame: Frame
    ref: FrameRef
    slot: int


class Gathering(threading.local):
    """The decoded frames of the calling thread that wait to be preprocessed together. Each thread has its own.

    They go when there are `limit` of them, when the oldest has waited for 2 ms, when a decoder is about to overwrite one (`Intake.settle`),
    and when the thread has nothing else to do (`flush`).
    """

    def __init__(self, engine: Engine, *, limit: int) -> None:
        self._engine = engine
        self._limit = limit
        self._waiting: list[_Gathered] = []
        self._since_ns = 0

    def put(self, intake: Intake, frame: Frame, ref: FrameRef, slot: int) -> None:
        """See Intake.put."""
        now_ns = time.monotonic_ns()
        if not self._waiting:
            self._since_ns = now_ns
        self._waiting.append(_Gathered(intake, frame, ref, slot))
        intake.gathered += 1
        if len(self._waiting) >= self._limit or now_ns - self._since_ns >= _GATHER_NS:
            self.flush()

    def flush(self) -> None:
        """Preprocess and submit what waits."""
        waiting, self._waiting = self._waiting, []
        lanes: dict[int, list[_Gathered]] = {}
        for each in waiting:
            each.intake.gathered -= 1
            lanes.setdefault(id(each.intake.lane), []).append(each)
        for together in lanes.values():
            self._preprocess(together[0].intake.lane, together)

    def _preprocess(self, lane: Lane, together: Sequence[_Gathered]) -> None:
        views = lane.pool.views
        try:
            lane.preprocessor.many([each.frame for each in together], [views[each.slot] for each in together])
        except Exception as error:  # noqa: BLE001 - one camera's frame must not cost the others theirs
            if len(together) > 1:
                for each in together:
                    self._preprocess(lane, [each])
                return
            (refused,) = together
            refused.intake.failure = error
            self._engine.refuse(lane, refused.ref, refused.slot)
            return
        lane.pool.mark_filled([each.slot for each in together])
        self._engine.submit(lane, [each.intake.sample(each.ref, each.slot) for each in together])
