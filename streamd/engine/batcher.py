"""Which samples go through the model together, and when. Pure: time is an argument, nothing blocks, no tensor is touched."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from streamd.types import Batch, Sample


class Batcher:
    """Samples of many cameras wait here. A batch leaves when it is full, or when its oldest sample has waited `max_wait_ns`.

    Cameras take turns: each gives its oldest sample, then goes to the end of the line, so a camera that floods waits behind itself.
    Within a camera the order is kept.
    """

    def __init__(self, *, max_batch: int, max_wait_ns: int) -> None:
        self._max_batch = max_batch
        self._max_wait_ns = max_wait_ns
        self._waiting: OrderedDict[str, deque[Sample]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waiting(self, camera: str) -> int:
        """How many samples of `camera` wait."""
        return len(self._waiting.get(camera, ()))

    def put(self, sample: Sample) -> None:
        """Take a sample in."""
        self._waiting.setdefault(sample.ref.camera, deque()).append(sample)
        self._count += 1

    def due_ns(self) -> int | None:
        """When the next batch leaves at the latest: 0 when one is full already, None when nothing waits."""
        if self._count >= self._max_batch:
            return 0
        if self._count == 0:
            return None
        return min(line[0].ready_ns for line in self._waiting.values()) + self._max_wait_ns

    def take(self, now_ns: int, *, flush: bool = False) -> Batch | None:
        """The batch that is due at `now_ns`, or None. With `flush` whatever waits is due."""
        due = self.due_ns()
        if due is None or (due > now_ns and not flush):
            return None
        samples: list[Sample] = []
        while self._count and len(samples) < self._max_batch:
            samples.append(self._pop_next())
        return Batch(samples=samples, formed_ns=now_ns)

    def _pop_next(self) -> Sample:
        camera, line = self._waiting.popitem(last=False)
        sample = line.popleft()
        self._count -= 1
        if line:
            self._waiting[camera] = line  # to the end of the line of cameras
        return sample

    def expire(self, now_ns: int) -> Sequence[Sample]:
        """Take out the samples that are too old at `now_ns`, wherever they wait: with B-frames the older of two may be shown later."""
        gone: list[Sample] = []
        for camera, line in list(self._waiting.items()):
            stale = [sample for sample in line if _is_stale(sample, now_ns)]
            if not stale:
                continue
            gone += stale
            if len(stale) == len(line):
                del self._waiting[camera]
            else:
                self._waiting[camera] = deque(sample for sample in line if not _is_stale(sample, now_ns))
        self._count -= len(gone)
        return gone

    def evict(self) -> Sample | None:
        """Take out the oldest sample that may be dropped, of the camera with the most of them; None when all must wait."""
        lines = [line for line in self._waiting.values() if line[0].expires_ns is not None]
        if not lines:
            return None
        longest = max(lines, key=len)
        sample = longest.popleft()
        self._count -= 1
        if not longest:
            del self._waiting[sample.ref.camera]
        return sample


def _is_stale(sample: Sample, now_ns: int) -> bool:
    return sample.expires_ns is not None and sample.expires_ns <= now_ns
