"""A stand-in for DALI's reader: runs of samples from the CPU's decoder and preprocessing, and whatever a test wants to go wrong."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from streamd.decoders.cpu import CpuDecoder
from streamd.decoders.dali import Recipe, Run
from streamd.preprocess.spec import InputSpec
from streamd.preprocess.torch_ops import TorchPreprocessor
from streamd.sources.file import FileSource
from streamd.types import StreamInfo


class FakeReader:
    """As dali.DaliReader. `before(n)` is called before the run of that number is given."""

    def __init__(
        self,
        path: Path,
        info: StreamInfo,
        recipe: Recipe,
        *,
        device: torch.device,
        frames: int = 8,
        before: Callable[[int], None] = lambda number: None,
    ) -> None:
        assert device.type == "cpu"
        self._path = path
        self._info = info
        self._recipe = recipe
        self._frames = frames
        self._before = before
        self.given = 0
        self.is_closed = threading.Event()

    def runs(self) -> Iterator[Run]:
        """See dali.DaliReader.runs."""
        pictures = enumerate(self._pictures())
        for number in itertools.count():
            together = list(itertools.islice(pictures, self._frames))
            if not together:
                return
            self._before(number)
            self.given += 1
            yield Run(
                samples=torch.stack([sample for _, (sample, _) in together]),
                frames=tuple(frame for frame, _ in together),
                times_s=tuple(time_s for _, (_, time_s) in together),
                received_ns=time.monotonic_ns(),
                captured_ns=time.time_ns(),
            )

    def _pictures(self) -> Iterator[tuple[torch.Tensor, float]]:
        """Samples [height, width, 3], and when they are shown."""
        recipe = self._recipe
        spec = InputSpec(recipe.resized, recipe.size, recipe.interpolation, recipe.mean, recipe.std)
        preprocessor = TorchPreprocessor(spec, "cpu")
        source, decoder = FileSource(self._path, loop=False), CpuDecoder(self._info, device="cpu")
        stamps: dict[int, int] = {}
        source.open()
        first: int | None = None
        for packet in [*source.packets(), None]:
            if packet is not None:
                stamps[packet.token] = packet.pts
            for frame in decoder.drain() if packet is None else decoder.decode(packet):
                sample = torch.empty(*recipe.size, 3, dtype=recipe.dtype)
                preprocessor(frame, sample.permute(2, 0, 1))
                first = stamps[frame.token] if first is None else first
                yield sample, float((stamps[frame.token] - first) * self._info.time_base)
        source.close()

    def close(self) -> None:
        """See dali.DaliReader.close."""
        self.is_closed.set()
