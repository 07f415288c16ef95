"""Classification models by configuration. One file a kind; none of them runs code that comes with weights."""

from __future__ import annotations

from dataclasses import replace

import torch

from streamd.config.types import ModelConfig
from streamd.models import efficientnet_lite, torchvision_zoo
from streamd.models.base import LoadedModel

__all__ = ["LoadedModel", "load"]


def load(name: str, config: ModelConfig, *, device: torch.device | str) -> LoadedModel:
    """The model that `config` describes under `models: {name: …}`, in eval mode and float32, on `device`.

    Raises ModelError, whose text begins with the key that is wrong.
    """
    if config.torchvision is not None:
        model = torchvision_zoo.load(name, config, architecture=config.torchvision)
    else:
        model = efficientnet_lite.load(name)
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    return replace(
        model,
        module=model.module.eval().requires_grad_(requires_grad=False).to(device),
        precision=("fp16" if config.precision == "auto" else config.precision) if on_gpu else "fp32",
        compile=config.compile and on_gpu,
    )
