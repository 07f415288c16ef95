"""A file's way to samples through DALI, which takes the place of demuxer, decoder and preprocessing: runs of frames that are ready for the
model are read on the reader's thread, and copied into the engine's slots on a decode thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import structlog
import torch

from streamd.camera.ledger import CameraLedger
from streamd.camera.pool import DecodePool
from streamd.camera.sampling import TimeSampler
from streamd.camera.turns import MOST, Urgency
from streamd.decoders import dali
from streamd.decoders.dali import Recipe, Run
from streamd.engine import Intake
from streamd.errors import DecoderUnavailable, StreamdError
from streamd.preprocess.spec import InputSpec
from streamd.sources.file import FileSource
from streamd.types import DropReason, FrameRef, StreamInfo

log = structlog.get_logger(__name__)

_FIRST_PACKETS = 64
"""Among so many packets is the one that is shown first."""


def recipe(spec: InputSpec, info: StreamInfo, dtype: torch.dtype) -> Recipe:
    """What `spec` makes of the pictures of a stream."""
    place = spec.geometry(info.height, info.width, rotation_deg=0)
    return Recipe(
        resized=(place.rows.resized, place.cols.resized),
        origin=(place.rows.start - place.top, place.cols.start - place.left),
        size=spec.crop,
        interpolation=spec.interpolation,
        mean=spec.mean,
        std=spec.std,
        dtype=dtype,
    )


class RunReader(Protocol):
    """See dali.DaliReader."""

    def runs(self) -> Iterator[Run]: ...

    def close(self) -> None: ...


class BacklogSource:
    """As a Source (see sources/base.py), with runs of samples instead of packets."""

    def __init__(self, file: FileSource, spec: InputSpec, *, dtype: torch.dtype, device: torch.device, rotate: int | None) -> None:
        """`rotate` as in the configuration; None: what the file says."""
        self._file = file
        self._spec = spec
        self._dtype = dtype
        self._device = device
        self._rotate = rotate
        self._info: StreamInfo | None = None
        self._reader: RunReader | None = None
        self.first_pts = 0
        """Of the frame that is shown first, in ticks; DALI counts from there."""

    def open(self) -> StreamInfo:
        """See Source.open. Raises DecoderUnavailable as well."""
        info = self._file.open()
        stamps = [packet.pts for packet in islice(self._file.packets(), _FIRST_PACKETS) if packet.pts is not None and packet.pts >= 0]
        self._file.close()
        self.first_pts = min(stamps, default=0)
        self._info = info if self._rotate is None else replace(info, rotation_deg=self._rotate)
        refusal = dali.refusal(self._info, self._device)
        if refusal is not None:
            raise DecoderUnavailable(refusal)
        return self._info

    def packets(self) -> Iterator[Run]:
        """All runs of the file. Raises DecoderUnavailable, DecodeError."""
        assert self._info is not None
        made = recipe(self._spec, self._info, self._dtype)
        self._reader = dali.DaliReader(self._file.path, self._info, made, device=self._device)
        yield from self._reader.runs()

    def close(self) -> None:
        """See Source.close."""
        self._file.close()
        if self._reader is not None:
            self._reader.close()


@dataclass(frozen=True, slots=True)
class BacklogConfig:
    """Whose frames they are, and which are wanted."""

    camera: str
    session: str
    fps: float | None
    first_pts: int


class Backlog:
    """Work of a Strand, and a Stage of a session. One run waits while one is copied: whoever `put`s the next one waits too.

    `on_up` is called before the first frame, `on_done` once at the end, both from a decode thread.
    """

    def __init__(
        self,
        config: BacklogConfig,
        info: StreamInfo,
        *,
        intake: Intake,
        ledger: CameraLedger,
        pool: DecodePool,
        on_up: Callable[[], None],
        on_done: Callable[[StreamdError | None], None],
    ) -> None:
        self._config = config
        self._info = info
        self._intake = intake
        self._ledger = ledger
        self._on_up = on_up
        self._on_done = on_done
        self._sampler = TimeSampler(config.fps)
        self._ready = threading.Condition()
        self._waiting: Run | None = None
        self._closed = False
        self._abandoned = False
        self._is_up = False
        self._is_done = False
        self._run: Run | None = None
        self._left: list[int] = []
        """Places in the run of frames that are wanted and have no slot yet."""
        self._copied: tuple[Run, torch.cuda.Event] | None = None
        """The last run, and when all of it is copied: DALI would use its memory again at once."""
        self._log = log.bind(camera=config.camera, session=config.session)
        self.strand = pool.strand(self, urgency=self._urgency)

    def _urgency(self) -> Urgency:
        """What has ended must not wait for a thread that is overloaded."""
        return MOST if self._closed else (self._intake.rank, 0.0)

    def put(self, run: Run) -> int:
        """Hand a run over, when the one before was taken; returns how many frames are given up, since the backlog is closed."""
        with self._ready:
            self._ready.wait_for(lambda: self._closed or self._waiting is None)
            if self._closed:
                return len(run.frames)
            self._waiting = run
        self.strand.wake()
        return 0

    def close(self) -> None:
        """See Stage.close."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        self.strand.hasten()

    def abandon(self) -> None:
        """See Stage.abandon."""
        self._abandoned = True
        self.close()

    # --- on a decode thread

    def step(self) -> bool:
        """See pool.Work."""
        if self._is_done:
            return False
        if self._abandoned:
            self._finish(None)
            return False
        is_closed = self._closed  # before it is looked whether a run waits: none follows
        if not self._left and not self._next_run():
            if is_closed:
                self._finish(None)
            return False
        if self._left and not self._intake.has_room(self.strand.wake):
            return False
        if self._left:
            self._copy()
        return True

    def crashed(self, error: BaseException) -> None:
        """See pool.Work."""
        if not isinstance(error, StreamdError):
            self._log.error("backlog_crashed", exc_info=error)
            error = StreamdError(f"reading ahead failed: {type(error).__name__}")
        self._finish(error)

    def _take(self) -> Run | None:
        with self._ready:
            run, self._waiting = self._waiting, None
            self._ready.notify_all()
            return run

    def _next_run(self) -> bool:
        """Go on to the run that waits, and choose its frames; False when there is none."""
        run = self._take()
        if run is None:
            return False
        self._let_go()
        self._run = run
        if not self._is_up:
            self._is_up = True
            self._on_up()
        self._ledger.decoded(len(run.frames))
        self._left = [place for place, time_s in enumerate(run.times_s) if self._sampler.wants(time_s)]
        self._ledger.dropped(DropReason.SAMPLED_OUT, len(run.frames) - len(self._left))
        return True

    def _copy(self) -> None:
        """As many frames as there are slots for."""
        run = self._run
        assert run is not None
        decoded_ns = time.monotonic_ns()
        slots = self._intake.take_slots(len(self._left))
        if not slots:
            self._give_up()
            return
        places = self._left[: len(slots)]
        is_whole = len(places) == len(run.frames)
        samples = run.samples if is_whole else torch.stack([run.samples[place] for place in places])
        self._intake.fill([self._ref(run, place, decoded_ns) for place in places], slots, samples)
        self._left = self._left[len(slots) :]

    def _ref(self, run: Run, place: int, decoded_ns: int) -> FrameRef:
        time_base = self._info.time_base
        return FrameRef(
            camera=self._config.camera,
            session=self._config.session,
            sequence=run.frames[place],
            pts=self._config.first_pts + round(run.times_s[place] / time_base),
            time_base=time_base,
            captured_ns=run.captured_ns,
            received_ns=run.received_ns,
            decoded_ns=decoded_ns,
        )

    def _let_go(self) -> None:
        """Of the run that is done: once it is copied, which it is long before the next run is done too."""
        if self._copied is not None:
            self._copied[1].synchronize()
            self._copied = None
        if self._run is not None and self._run.samples.is_cuda:
            event = torch.cuda.Event()
            event.record()
            self._copied = (self._run, event)
        self._run = None

    def _give_up(self) -> None:
        self._ledger.dropped(DropReason.SHUTDOWN, len(self._left))
        self._left = []

    def _finish(self, error: StreamdError | None) -> None:
        self._is_done = True
        self.strand.close()
        self._give_up()
        with self._ready:
            self._closed = True
        rest = self._take()
        self._ledger.dropped(DropReason.SHUTDOWN, 0 if rest is None else len(rest.frames))
        self._let_go()
        self._let_go()  # of what was just copied
        self._on_done(error)
