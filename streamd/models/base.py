"""What a loaded model is: a module, the names of its outputs, and what it wants to see."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from streamd.preprocess.spec import InputSpec


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A classifier, ready for inference.

    `module` maps [batch, 3, height, width] to logits [batch, len(labels)]; it is in eval mode, float32, without gradients.
    """

    name: str
    """Its key under `models:`."""
    module: nn.Module
    labels: tuple[str, ...]
    input: InputSpec
    precision: str = "fp32"
    """`fp16`, `bf16` or `fp32`: in what the engine runs it."""
    compile: bool = False
    """Whether the engine compiles it with torch.compile."""
