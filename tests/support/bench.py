"""Decoders under test, and what their frames show: copies on the CPU, taken on the CUDA stream that they are to be read on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt
import torch

from streamd.decoders.base import Decoder
from streamd.decoders.cpu import CpuDecoder
from streamd.decoders.nvdec import NvdecDecoder
from streamd.types import Frame, Packet, StreamInfo
from support.clips import Marker, read_marker
from support.frames import plane


@dataclass(frozen=True, slots=True)
class Shot:
    """A frame, copied to the CPU."""

    token: int
    marker: Marker | None
    planes: tuple[npt.NDArray[Any], ...]
    """Y, or Y, U and V, without the bits below the significant ones."""
    frame: Frame
    """What is said of it; its own planes are no longer valid."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        height, width = self.planes[0].shape
        return width, height


@dataclass(slots=True)
class Bench:
    """A context manager that makes decoders of one kind, `cpu` or `nvdec`, and closes them at the end."""

    name: str
    stream: torch.cuda.Stream | None = None
    _made: list[Decoder] = field(default_factory=list)

    def decoder(self, info: StreamInfo) -> Decoder:
        """A new decoder for `info`."""
        made: Decoder
        if self.name == "cpu":
            made = CpuDecoder(info, device="cpu")
        else:
            self.stream = self.stream or torch.cuda.Stream()
            made = NvdecDecoder(info, stream=self.stream)
        self._made.append(made)
        return made

    def _at_work(self) -> AbstractContextManager[Any]:
        """As a camera does it, decoders are called and frames read with their stream as the current one."""
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def shot(self, frame: Frame) -> Shot:
        """A copy of `frame`."""
        with self._at_work():
            planes = tuple(plane(samples) >> frame.shift for samples in (frame.y, frame.u, frame.v) if samples is not None)
        return Shot(frame.token, read_marker(planes[0]), planes, frame)

    def frames(self, decoder: Decoder, packet: Packet) -> list[Frame]:
        """What `decoder` gives for one packet, valid until its next call."""
        with self._at_work():
            return list(decoder.decode(packet))

    def fed(self, decoder: Decoder, packet: Packet) -> list[Shot]:
        """What `decoder` gives for one packet, copied."""
        return [self.shot(frame) for frame in self.frames(decoder, packet)]

    def drained(self, decoder: Decoder) -> list[Shot]:
        """What `decoder` held back, copied."""
        with self._at_work():
            return [self.shot(frame) for frame in decoder.drain()]

    def decoded(self, info: StreamInfo, packets: Iterable[Packet]) -> list[Shot]:
        """All frames of a stream, in the order in which they come."""
        decoder = self.decoder(info)
        shots = [shot for packet in packets for shot in self.fed(decoder, packet)]
        shots += self.drained(decoder)
        decoder.close()
        return shots

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._made:
            self._made.pop().close()
