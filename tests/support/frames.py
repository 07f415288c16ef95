"""From clips to packets, and what is seen when packets are decoded: the frames' markers, and their planes as arrays on the CPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from streamd.decoders.cpu import CpuDecoder
from streamd.sources.file import FileSource
from streamd.types import Frame, Packet, StreamInfo
from support.clips import Marker, read_marker


def plane(samples: Tensor) -> npt.NDArray[Any]:
    """A plane of a frame, copied to the CPU; the samples as they are, uint8 or uint16."""
    if samples.dtype == torch.uint16:  # torch knows hardly any operation on it
        return samples.view(torch.int16).contiguous().cpu().numpy().view(np.uint16).copy()
    return samples.contiguous().cpu().numpy().copy()


def marker_of(frame: Frame) -> Marker | None:
    """What a frame says of itself; None where it is not readable."""
    return read_marker(plane(frame.y))


def seen(info: StreamInfo, packets: Iterable[Packet]) -> list[Marker | None]:
    """The markers of all frames, in display order, decoded on the CPU."""
    decoder = CpuDecoder(info, device="cpu")
    markers = [marker_of(frame) for packet in packets for frame in decoder.decode(packet)]
    markers += [marker_of(frame) for frame in decoder.drain()]
    decoder.close()
    return markers


def packets_of(path: Path) -> tuple[StreamInfo, list[Packet]]:
    """What a file holds. Raises SourceError."""
    source = FileSource(path, loop=False)
    try:
        info = source.open()
        return info, list(source.packets())
    finally:
        source.close()


def joined(*parts: list[Packet]) -> list[Packet]:
    """The packets of several streams as those of one: tokens from 0, time stamps that go on rising."""
    packets: list[Packet] = []
    shift = 0
    for part in parts:
        stamps = [stamp for packet in part for stamp in (packet.pts, packet.dts) if stamp is not None]
        shift -= min(stamps, default=0)
        for packet in part:
            pts, dts = (None if stamp is None else stamp + shift for stamp in (packet.pts, packet.dts))
            packets.append(replace(packet, token=len(packets), pts=pts, dts=dts))
        shift += max(stamps, default=0) + 1_000
    return packets
