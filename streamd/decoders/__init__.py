"""Decoders: from encoded packets to frames on the engine's device. `choose` says which one takes a stream, and why."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from streamd.decoders import nvdec
from streamd.decoders.cpu import CpuDecoder
from streamd.decoders.keyframes import KeyframeDecoders, Session
from streamd.errors import DecoderUnavailable
from streamd.types import StreamInfo

__all__ = ["Choice", "KeyframeDecoders", "choose", "create"]


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    """`nvdec` or `cpu`."""
    reason: str | None
    """Why not NVDEC, where a GPU is there; None when there is nothing to explain."""


def choose(info: StreamInfo, *, policy: str, device: torch.device) -> Choice:
    """Which decoder takes the stream on `device`.

    Args:
        info: the stream.
        policy: `auto`, `nvdec` or `cpu`.
        device: where the frames are wanted.

    Raises:
        DecoderUnavailable: `policy` is `nvdec`, and NVDEC cannot take the stream.
    """
    if policy == "cpu":
        return Choice("cpu", None)
    if device.type != "cuda":
        if policy == "nvdec":
            raise DecoderUnavailable("decoder: nvdec needs a GPU, and the engine runs on the CPU")
        return Choice("cpu", None)
    try:
        refusal = nvdec.refusal(info.codec, info.pixel_format, info.width, info.height, device.index or 0)
    except DecoderUnavailable as error:
        refusal = str(error)
    if refusal is None:
        return Choice("nvdec", None)
    if policy == "nvdec":
        raise DecoderUnavailable(refusal)
    return Choice("cpu", refusal)


def create(choice: Choice, info: StreamInfo, *, device: torch.device, low_latency: bool = True) -> Session:
    """The decoder that was chosen. On a GPU its frames are to be read on what is now the current CUDA stream.

    `low_latency`: frames are wanted as soon as possible, rather than with as little work as possible.
    """
    if choice.name == "nvdec":
        return nvdec.NvdecDecoder(info, stream=torch.cuda.current_stream(device), low_latency=low_latency)
    return CpuDecoder(info, device=device)
