"""What cameras of a worker share, small and real: an engine on the CPU whose model reads the marker of a clip's pictures."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass

import pytest
import torch
from support import clips
from support.clips import COLUMNS, ROWS, marker_region
from support.wait import wait_until, wait_until_async
from torch import Tensor, nn

from streamd.camera.camera import Camera
from streamd.camera.feed import Machine
from streamd.camera.ledger import CameraLedger
from streamd.camera.pool import DecodePool
from streamd.camera.session import Session
from streamd.config.types import CameraConfig, EngineConfig
from streamd.engine import Engine
from streamd.models import LoadedModel
from streamd.preprocess.spec import InputSpec

SIZE = (320, 240)
CAMERAS, FRAMES = 8, 256
UNREADABLE = CAMERAS * FRAMES
"""The class that says that there is no marker."""
_SPEC = InputSpec(resize=256, crop=(224, 224), interpolation="bilinear", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


class MarkerModel(nn.Module):
    """Logits that say `camera * FRAMES + frame`, read from the pixels; remembers the pictures, and waits while `open` is not set.
    Takes `frame_s` for each frame.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.open.set()
        self.pictures: list[Tensor] = []
        self.frame_s = 0.0
        kept = min(SIZE) * 224 / 256
        left, top, right, bottom = marker_region(SIZE, crop=(kept, kept))
        self.columns = [(left + (right - left) * (n + 0.5) / COLUMNS) * 224 for n in range(COLUMNS)]
        self.rows = [(top + (bottom - top) * (n + 0.5) / ROWS) * 224 for n in range(ROWS)]

    def forward(self, batch: Tensor) -> Tensor:
        assert self.open.wait(30), "a test did not let the model go on"
        time.sleep(self.frame_s * len(batch))
        self.pictures += list(batch.clone())
        logits = torch.zeros(len(batch), UNREADABLE + 1)
        for row, picture in zip(logits, batch, strict=True):
            row[self.read(picture)] = 20.0
        return logits

    def read(self, picture: Tensor) -> int:
        """The class of one picture [3, 224, 224], normalised."""
        gray = picture.mean(0)
        cells = torch.stack(
            [torch.stack([gray[int(y) - 5 : int(y) + 6, int(x) - 5 : int(x) + 6].mean() for x in self.columns]) for y in self.rows]
        )
        low, high = cells.min(), cells.max()
        if high - low < 1.0:
            return UNREADABLE
        bits = (cells > (low + high) / 2).flatten().tolist()
        value = int("".join("1" if bit else "0" for bit in bits), 2)
        frame, camera, check = value >> 16, value >> 8 & 0xFF, value & 0xFF
        if check != clips._crc8(value >> 8) or frame >= FRAMES or camera >= CAMERAS:
            return UNREADABLE
        return camera * FRAMES + frame


@dataclass(frozen=True)
class Seen:
    """One classified frame: what the daemon says of it, and what its pixels say."""

    camera: str
    session: str
    sequence: int
    pts: int | None
    marker_camera: int | None
    marker_frame: int | None
    age_s: float


class Rig:
    """An engine, decode threads, and what comes out of them. Books as a worker does: a frame is published when it has its scores."""

    def __init__(self, *, slots: int = 64, max_batch: int = 8) -> None:
        self.model = MarkerModel()
        self.ledgers: defaultdict[str, CameraLedger] = defaultdict(CameraLedger)
        self.seen: list[Seen] = []
        self.states = []
        self.events = []
        self.cameras = {}
        labels = tuple(map(str, range(UNREADABLE + 1)))
        self.engine = Engine(
            {"markers": LoadedModel("markers", self.model.eval(), labels, _SPEC)},
            top_k={"markers": 1},
            config=EngineConfig(device="cpu", max_batch=max_batch, slots=slots, max_wait=0.005),
            device=torch.device("cpu"),
            on_scores=self._scored,
            on_drop=lambda refs, reason: [self.ledgers[ref.camera].dropped(reason) for ref in refs],
        )
        self.pool = DecodePool(2, prepare=lambda: torch.set_num_threads(1))
        self.machine = Machine(self.engine, self.pool, torch.device("cpu"))
        self.engine.start(on_failure=lambda: None)
        self.model.pictures.clear()
        self.pool.start()

    def _scored(self, scores) -> None:
        for score in scores:
            ref, found = score.ref, score.classes[0]
            camera, frame = (None, None) if found == UNREADABLE else divmod(found, FRAMES)
            age_s = (time.monotonic_ns() - ref.received_ns) / 1e9
            self.seen.append(Seen(ref.camera, ref.session, ref.sequence, ref.pts, camera, frame, age_s))
            self.ledgers[ref.camera].published(1)

    def session(self, url, *, name="door", on_up=lambda up: None, **config) -> Session:
        return Session(name, _config(url, config), model="markers", machine=self.machine, ledger=self.ledgers[name], on_up=on_up)

    def camera(self, url, *, name="door", **config) -> Camera:
        def changed(state, event):
            self.states.append(state)
            if event is not None:
                self.events.append(event)

        camera = Camera(name, _config(url, config), model="markers", machine=self.machine, on_change=changed)
        self.ledgers[name] = camera.ledger
        return camera

    def counts(self, name="door"):
        return self.ledgers[name].snapshot()

    async def settled(self, name="door"):
        """Until no frame of the camera is in flight."""
        await wait_until_async(lambda: self.counts(name).in_flight == 0, what="all frames accounted for")

    def frames(self, name="door"):
        """Frame numbers read from the pixels, in the order of the results."""
        return [seen.marker_frame for seen in self.seen if seen.camera == name]

    def phases(self, name="door"):
        return [str(state.phase) for state in self.states if state.camera == name]

    def state(self, phase, name="door"):
        """The latest state of that phase."""
        return [state for state in self.states if state.camera == name and state.phase == phase][-1]

    def end(self) -> None:
        """Stop all, then check that every frame is accounted for."""
        self.model.open.set()
        assert self.pool.stop(timeout_s=10)
        self.engine.stop()
        assert self.engine.failure is None
        for name, ledger in self.ledgers.items():
            counts = ledger.snapshot()
            assert counts.in_flight == 0, f"{name}: {counts}"
            assert counts.published == sum(seen.camera == name for seen in self.seen), name


def _config(url, config):
    quick = {"connect_timeout": 5, "first_packet_timeout": 5, "silence_timeout": 5, "max_age": 5}
    return CameraConfig.model_validate({"url": str(url), **quick, **config})


@pytest.fixture
def new_rig():
    """`new_rig(slots=8, max_batch=4)`; at the end each frame of each camera must be accounted for."""
    rigs = []

    def new(**options):
        rigs.append(Rig(**options))
        return rigs[-1]

    yield new
    for rig in rigs:
        rig.end()


@pytest.fixture
def rig(new_rig):
    return new_rig()


class StuckSource:
    """A source whose native call does not return: `packets` of a clip, then nothing, for ever; or nothing from the very first call."""

    def __init__(self, source=None, *, packets=0) -> None:
        self._source = source
        self._packets = packets
        self.release = threading.Event()
        self.thread: threading.Thread | None = None
        self.is_closed = False

    def open(self):
        self.thread = threading.current_thread()
        if self._source is None:
            self.release.wait()
            raise OSError("too late for anybody")
        return self._source.open()

    def packets(self):
        for number, packet in enumerate(self._source.packets()):
            if number == self._packets:
                self.release.wait()
            yield packet

    def close(self):
        self.is_closed = True
        if self._source is not None:
            self._source.close()


@pytest.fixture
def stuck_source(monkeypatch):
    """`stuck_source(real_source, packets=3)`: what every camera gets as its source. At the end the call returns and the thread must end."""
    made = []

    def make(source=None, *, packets=0):
        stuck = StuckSource(source, packets=packets)
        made.append(stuck)
        monkeypatch.setattr("streamd.sources.of_camera", lambda config: stuck)
        return stuck

    yield make
    for stuck in made:
        stuck.release.set()
        thread = stuck.thread
        if thread is not None:
            assert thread.daemon, "it must not keep a worker from its exit"
            wait_until(lambda thread=thread: not thread.is_alive(), what="the abandoned thread ends when its call returns")
            assert stuck.is_closed
