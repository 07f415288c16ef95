"""Which samples go through the model together, and when. Pure: time is an argument, nothing blocks, no tensor is touched."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count

from streamd.types import Batch, Sample

_BATCH_SHARE = 1 / 3
"""A batch may take this share of the strictest `max_age`: a frame waits for the batch before its own, then for its own."""
_LATE_SHARE = 1 / 4
"""A sample as old as this share of its `max_age` is late."""
_PATIENCE_SHARE = 1 / 8
"""How long, as a share of the strictest `max_age`, samples may stay late before older ones make way for newer ones."""
_SMOOTHING = 1 / 8
"""Weight of the latest batch in the time that a sample takes."""

Lines = dict[str, deque[Sample]]
"""The samples of each camera that has some."""


class Batcher:
    """Samples of many cameras wait here. A batch leaves when it is full, or when its oldest sample has waited `max_wait_ns`, or a file's
    `file_wait_ns`.

    Higher ranks go first. Cameras of one rank take turns, the one first that was served longest ago, and each gives its oldest sample: so a
    camera that floods waits behind itself. Within a camera the order is kept. Samples with an expiry leave by three more doors: `expire`,
    when they would come out too old; `shed`, when the model is overloaded; `evict`, when memory runs out.
    """

    def __init__(self, *, max_batch: int, max_wait_ns: int, file_wait_ns: int | None = None) -> None:
        """`file_wait_ns` is `max_wait_ns` unless given."""
        self._max_batch = max_batch
        self._max_wait_ns = max_wait_ns
        self._file_wait_ns = max_wait_ns if file_wait_ns is None else file_wait_ns
        self._ranks: dict[int, Lines] = {}
        self._count = 0
        self._turns = count(1)
        self._served: dict[str, int] = {}
        """The latest turn of each camera."""
        self._sample_ns = 0.0
        """What the model takes for a sample."""
        self._strictest_ns: int | None = None
        """The smallest `max_age` that was seen."""
        self._late_since_ns: int | None = None
        self._is_shedding = False

    def __len__(self) -> int:
        return self._count

    def waiting(self, camera: str) -> int:
        """How many samples of `camera` wait."""
        return sum(len(lines[camera]) for lines in self._ranks.values() if camera in lines)

    @property
    def limit(self) -> int:
        """How many samples a batch holds: fewer than `max_batch` where a slow model would make live frames too old."""
        if self._strictest_ns is None or not self._sample_ns:
            return self._max_batch
        return max(1, min(self._max_batch, int(self._strictest_ns * _BATCH_SHARE / self._sample_ns)))

    def put(self, sample: Sample) -> None:
        """Take a sample in."""
        self._ranks.setdefault(sample.rank, {}).setdefault(sample.ref.camera, deque()).append(sample)
        self._count += 1
        if sample.expires_ns is not None:
            max_age_ns = sample.expires_ns - sample.ref.received_ns
            self._strictest_ns = max_age_ns if self._strictest_ns is None else min(self._strictest_ns, max_age_ns)

    def took(self, batch: Batch, done_ns: int) -> None:
        """The scores of `batch` were there at `done_ns`."""
        sample_ns = (done_ns - batch.formed_ns) / len(batch.samples)
        self._sample_ns += (sample_ns - self._sample_ns) * (_SMOOTHING if self._sample_ns else 1.0)

    def due_ns(self) -> int | None:
        """When the next batch leaves at the latest: 0 when one is full already, None when nothing waits."""
        if self._count >= self.limit:
            return 0
        if self._count == 0:
            return None
        return min(self._due_ns(line[0]) for _, _, line in self._each())

    def take(self, now_ns: int, *, flush: bool = False) -> Batch | None:
        """The batch that is due at `now_ns`, or None. With `flush` whatever waits is due."""
        due = self.due_ns()
        if due is None or (due > now_ns and not flush):
            return None
        samples: list[Sample] = []
        limit = self.limit
        for rank in sorted(self._ranks, reverse=True):
            lines = self._ranks[rank]
            line_up = deque(sorted(lines, key=lambda camera: self._served.get(camera, 0)))
            while line_up and len(samples) < limit:
                camera = line_up.popleft()
                samples.append(self._pop(rank, camera))
                self._served[camera] = next(self._turns)
                if camera in lines:
                    line_up.append(camera)
        return Batch(samples=samples, formed_ns=now_ns)

    def expire(self, now_ns: int) -> Sequence[Sample]:
        """Take out the samples that would be too old with their scores if a batch left at `now_ns`, wherever they wait: with B-frames the
        older of two may be shown later.

        For what the model takes at most half of a sample's `max_age` is set aside: with a slower one a frame is classified while it is
        young, and its result is late.
        """
        batch_ns = int(self._sample_ns * min(self._count, self.limit))

        def is_stale(sample: Sample) -> bool:
            if sample.expires_ns is None:
                return False
            return now_ns >= sample.expires_ns - min(batch_ns, (sample.expires_ns - sample.ref.received_ns) // 2)

        gone: list[Sample] = []
        for rank, camera, line in list(self._each()):
            stale = [sample for sample in line if is_stale(sample)]
            if stale:
                gone += stale
                self._replace(rank, camera, deque(sample for sample in line if not is_stale(sample)))
        return gone

    def shed(self, now_ns: int) -> Sequence[Sample]:
        """Before `take`: when live samples stay late, the oldest of the cameras with most of them leave until each rank fits into what the
        ranks above leave of a batch, or has one sample a camera; and so on until one batch holds them all. So results stay young under a
        lasting overload, and a short crowd loses nothing.
        """
        due = self.due_ns()
        if due is None or due > now_ns:
            return []
        live = [line for _, _, line in self._each() if line[0].expires_ns is not None]
        if sum(map(len, live)) <= self.limit:
            self._late_since_ns, self._is_shedding = None, False
        elif not self._is_shedding:
            self._is_shedding = self._stays_late(max(_age(line[0], now_ns) for line in live), now_ns)
        return self._trim() if self._is_shedding else []

    def _stays_late(self, oldest: float, now_ns: int) -> bool:
        """Whether the oldest sample, whose age is a share of its `max_age`, has been late for a while."""
        if oldest <= _LATE_SHARE or self._strictest_ns is None:
            self._late_since_ns = None
            return False
        if self._late_since_ns is None:
            self._late_since_ns = now_ns
        return now_ns - self._late_since_ns >= self._strictest_ns * _PATIENCE_SHARE

    def _trim(self) -> Sequence[Sample]:
        gone: list[Sample] = []
        room = self.limit
        for rank in sorted(self._ranks, reverse=True):
            waiting = sum(map(len, self._ranks[rank].values()))
            for _ in range(waiting - room):
                sample = self._drop_of_longest(rank, keep=1)
                if sample is None:
                    break
                gone.append(sample)
            room = max(0, room - waiting)
        return gone

    def evict(self, rank: int) -> Sample | None:
        """Make room for a sample of `rank`: take out the oldest that may be dropped, of the camera with most of them in the lowest rank.
        None when all that is not of a higher rank must wait.
        """
        for lowest in sorted(self._ranks):
            if lowest <= rank and (sample := self._drop_of_longest(lowest, keep=0)) is not None:
                return sample
        return None

    def _due_ns(self, sample: Sample) -> int:
        return sample.ready_ns + (self._file_wait_ns if sample.expires_ns is None else self._max_wait_ns)

    def _each(self) -> Iterator[tuple[int, str, deque[Sample]]]:
        return ((rank, camera, line) for rank, lines in self._ranks.items() for camera, line in lines.items())

    def _drop_of_longest(self, rank: int, *, keep: int) -> Sample | None:
        lines = self._ranks[rank]
        live = [camera for camera, line in lines.items() if line[0].expires_ns is not None and len(line) > keep]
        return self._pop(rank, max(live, key=lambda camera: len(lines[camera]))) if live else None

    def _pop(self, rank: int, camera: str) -> Sample:
        """The oldest sample of a camera."""
        line = self._ranks[rank][camera]
        sample = line.popleft()
        self._count -= 1
        self._forget_if_empty(rank, camera)
        return sample

    def _replace(self, rank: int, camera: str, line: deque[Sample]) -> None:
        lines = self._ranks[rank]
        self._count += len(line) - len(lines[camera])
        lines[camera] = line
        self._forget_if_empty(rank, camera)

    def _forget_if_empty(self, rank: int, camera: str) -> None:
        if not self._ranks[rank][camera]:
            del self._ranks[rank][camera]


def _age(sample: Sample, now_ns: int) -> float:
    """As a share of its `max_age`; 0 for a file's."""
    if sample.expires_ns is None:
        return 0.0
    return (now_ns - sample.ref.received_ns) / max(1, sample.expires_ns - sample.ref.received_ns)
