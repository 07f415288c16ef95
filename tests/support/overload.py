"""A worker under more load than it can carry, as a discrete-event simulation: the real Inbox, Turns and Batcher, a decoder and a model of
fixed speed, and a clock that nobody waits for. Same seed, same result.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import count

from streamd.camera.inbox import Inbox
from streamd.camera.turns import Turns
from streamd.engine.batcher import Batcher
from streamd.types import Batch, DropReason, FrameRef, Ledger, Packet, Sample

S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Source:
    """One live camera. Its first key frame comes at a random place."""

    name: str
    rank: int = 2
    fps: float = 30.0
    gop: int = 30
    max_age_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Plant:
    """What the cameras share."""

    decode_fps: float
    """Of all decode threads together."""
    model_fps: float
    decode_threads: int = 4
    max_batch: int = 32
    slots: int = 256
    max_wait_s: float = 0.01
    stall_at_s: float | None = None
    """When all decoding stands still for `stall_s`, once."""
    stall_s: float = 0.0


@dataclass(slots=True)
class Watched:
    """A camera and what became of its frames."""

    source: Source
    inbox: Inbox
    ledger: Ledger = field(default_factory=Ledger)
    token: int = 0
    decoded_token: int = -1
    """The latest one that was decoded: the next may only be its successor or a key frame."""
    ages_s: list[float] = field(default_factory=list)
    """Of what was published after the warm-up."""
    published_tokens: list[int] = field(default_factory=list)
    lost: int = 0
    """Dropped after the warm-up; what came before the first key frame is not counted."""

    def drop(self, reason: DropReason, number: int = 1) -> None:
        if number:
            self.ledger.dropped[reason] = self.ledger.dropped.get(reason, 0) + number
            self.lost += number if reason is not DropReason.BEFORE_KEYFRAME else 0


@dataclass(frozen=True, slots=True)
class Outcome:
    cameras: Sequence[Watched]
    seconds: float

    def results(self, rank: int | None = None) -> list[int]:
        """Published frames of each camera."""
        return [len(camera.ages_s) for camera in self.cameras if rank in {None, camera.source.rank}]

    def fps(self, rank: int | None = None) -> float:
        return sum(self.results(rank)) / self.seconds

    def lost(self, rank: int) -> int:
        return sum(camera.lost for camera in self.cameras if camera.source.rank == rank)

    @property
    def jain(self) -> float:
        """Jain's fairness index of the results a camera (R. Jain et al., DEC-TR-301, 1984)."""
        shares = self.results()
        return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))

    def age_s(self, percent: float) -> float:
        ages = sorted(age for camera in self.cameras for age in camera.ages_s)
        return ages[min(len(ages) - 1, int(len(ages) * percent / 100))]


class Simulation:
    """`run` once."""

    def __init__(self, sources: Sequence[Source], plant: Plant, *, seed: int = 1) -> None:
        self.plant = plant
        self.cameras = {source.name: Watched(source, self.new_inbox(source)) for source in sources}
        self.batcher = self.new_batcher()
        self.turns: list[Turns[str]] = [Turns() for _ in range(plant.decode_threads)]
        self._busy = [False] * plant.decode_threads
        self._threads: dict[str, int] = {}
        for source in sources:
            self._threads[source.name] = min(range(plant.decode_threads), key=lambda thread: self._load(thread, source.rank))
        self._decode_ns = int(S * plant.decode_threads / plant.decode_fps)
        self._model_busy = False
        self._in_model = 0
        self._look_ns: int | None = None
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._chance = random.Random(seed)
        self._warm_ns = 0
        self._stalled_until_ns = 0
        self.now_ns = 0

    def _load(self, thread: int, rank: int) -> tuple[int, int]:
        """As DecodePool.strand has it."""
        ranks = [self.cameras[name].source.rank for name, where in self._threads.items() if where == thread]
        return len(ranks), sum(other >= rank for other in ranks)

    def new_inbox(self, source: Source) -> Inbox:
        return Inbox(max_age_s=source.max_age_s)

    def new_batcher(self) -> Batcher:
        return Batcher(max_batch=self.plant.max_batch, max_wait_ns=int(self.plant.max_wait_s * S))

    def run(self, seconds: float, *, warm_up_s: float) -> Outcome:
        """What happened in `seconds` after `warm_up_s`; then the cameras end, and everything that is under way comes out."""
        self._warm_ns, end_ns = int(warm_up_s * S), int((warm_up_s + seconds) * S)
        for camera in self.cameras.values():
            period_ns = int(S / camera.source.fps)
            phase = self._chance.randrange(camera.source.gop)
            self._at(self._chance.randrange(period_ns), lambda c=camera, n=period_ns, p=phase: self._arrive(c, n, p, end_ns))
        if self.plant.stall_at_s is not None:
            self._at(int(self.plant.stall_at_s * S), self._stall)
        while self._events:
            self.now_ns, _, happen = heapq.heappop(self._events)
            if self.now_ns >= self._warm_ns > 0:
                self._warm_ns = 0
                for camera in self.cameras.values():
                    camera.ages_s.clear()
                    camera.lost = 0
            happen()
        return Outcome(list(self.cameras.values()), seconds)

    def _at(self, when_ns: int, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when_ns, next(self._numbers), happen))

    # --- the camera

    def _arrive(self, camera: Watched, period_ns: int, phase: int, end_ns: int) -> None:
        if self.now_ns >= end_ns:
            camera.inbox.close()
            self._wake(camera)
            return
        is_key = (camera.token + phase) % camera.source.gop == 0
        packet = Packet(b"", camera.token, None, None, is_key, False, False, self.now_ns, self.now_ns)
        camera.token += 1
        camera.ledger.received += 1
        camera.drop(DropReason.OVERLOAD, camera.inbox.put(packet))
        self._wake(camera)
        jitter_ns = self._chance.randrange(-500_000, 500_000)  # so that no two cameras stay in step
        self._at(self.now_ns + period_ns + jitter_ns, lambda: self._arrive(camera, period_ns, phase, end_ns))

    # --- the decode threads

    def _wake(self, camera: Watched) -> None:
        thread = self._threads[camera.source.name]
        self.ask(self.turns[thread], camera)
        if not self._busy[thread]:
            self._decode(thread)

    def ask(self, turns: Turns[str], camera: Watched) -> None:
        turns.ask(camera.source.name, (camera.source.rank, camera.inbox.lost_share))

    def take(self, camera: Watched) -> Packet | None:
        camera.drop(DropReason.OVERLOAD, camera.inbox.give_up(self.now_ns))
        return camera.inbox.take()

    def _decode(self, thread: int) -> None:
        """Begin with the next packet, if any."""
        while self.turns[thread] and self.now_ns >= self._stalled_until_ns:
            camera = self.cameras[self.turns[thread].next()]
            packet = self.take(camera)
            if packet is None:
                continue
            if camera.decoded_token == -1 and not packet.is_keyframe:
                camera.drop(DropReason.BEFORE_KEYFRAME)
                self.ask(self.turns[thread], camera)
                continue
            assert packet.is_keyframe or packet.token == camera.decoded_token + 1, "a packet whose reference was given up"
            camera.decoded_token = packet.token
            self._busy[thread] = True
            self._at(self.now_ns + self._decode_ns, partial(self._decoded, thread, camera, packet))
            return

    def _stall(self) -> None:
        self._stalled_until_ns = self.now_ns + int(self.plant.stall_s * S)
        self._at(self._stalled_until_ns, self._go_on)

    def _go_on(self) -> None:
        for thread in range(self.plant.decode_threads):
            if not self._busy[thread]:
                self._decode(thread)

    def _decoded(self, thread: int, camera: Watched, packet: Packet) -> None:
        self._busy[thread] = False
        camera.ledger.decoded += 1
        self.ask(self.turns[thread], camera)
        self._submit(camera, packet)
        self._decode(thread)

    def _submit(self, camera: Watched, packet: Packet) -> None:
        source = camera.source
        expires_ns = packet.received_ns + int(source.max_age_s * S)
        if self.now_ns >= expires_ns:
            camera.drop(DropReason.STALE)
            return
        if len(self.batcher) + self._in_model >= self.plant.slots and not self._make_room(source.rank):
            camera.drop(DropReason.OVERLOAD)
            return
        ref = FrameRef(source.name, "s", packet.token, None, Fraction(1, 30), self.now_ns, packet.received_ns, self.now_ns)
        self.batcher.put(Sample(ref, 0, self.now_ns, expires_ns, source.rank))
        self._look()

    def _make_room(self, rank: int) -> bool:
        evicted = self.batcher.evict(rank)
        if evicted is not None:
            self._dropped([evicted], DropReason.OVERLOAD)
        return evicted is not None

    def _dropped(self, samples: Sequence[Sample], reason: DropReason) -> None:
        for sample in samples:
            self.cameras[sample.ref.camera].drop(reason)

    # --- the engine

    def _look(self) -> None:
        """As Engine._step does it."""
        if self._model_busy:
            return
        batch = self.form()
        if batch is not None:
            self._model_busy, self._in_model = True, len(batch.samples)
            self._at(self.now_ns + int(S * len(batch.samples) / self.plant.model_fps), lambda: self._scored(batch))
        elif (due_ns := self.batcher.due_ns()) is not None and due_ns != self._look_ns:
            self._look_ns = due_ns
            self._at(due_ns, self._look)

    def form(self) -> Batch | None:
        self._dropped(self.batcher.expire(self.now_ns), DropReason.STALE)
        self._dropped(self.batcher.shed(self.now_ns), DropReason.OVERLOAD)
        return self.batcher.take(self.now_ns)

    def _scored(self, batch: Batch) -> None:
        self._model_busy, self._in_model = False, 0
        self.batcher.took(batch, self.now_ns)
        for sample in batch.samples:
            camera = self.cameras[sample.ref.camera]
            assert not camera.published_tokens or sample.ref.sequence > camera.published_tokens[-1]
            camera.published_tokens.append(sample.ref.sequence)
            camera.ledger.published += 1
            camera.ages_s.append((self.now_ns - sample.ref.received_ns) / S)
        self._look()
