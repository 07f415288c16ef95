"""Preprocessing: a decoded frame becomes one normalised input of a model, equal to what the model's own transforms make of it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from streamd.preprocess.spec import InputSpec
from streamd.types import Frame


class Preprocessor(Protocol):
    """Any number of threads may use one. Its work is queued on the current CUDA stream."""

    def __call__(self, frame: Frame, out: Tensor) -> None:
        """Write a frame into a tensor [3, height, width] on its device."""
        ...

    def many(self, frames: Sequence[Frame], outs: Sequence[Tensor]) -> None:
        """Each frame into its own tensor."""
        ...


def create(spec: InputSpec, device: torch.device) -> Preprocessor:
    """The fastest preprocessor for `device`: the kernel where NVIDIA's bindings are installed, as they are with the extra `gpu`."""
    if device.type == "cuda" and find_spec("cuda") is not None and find_spec("cuda.bindings") is not None:
        from streamd.preprocess.fused import FusedPreprocessor  # noqa: PLC0415

        return FusedPreprocessor(spec, device)
    from streamd.preprocess.torch_ops import TorchPreprocessor  # noqa: PLC0415

    return TorchPreprocessor(spec, device)
