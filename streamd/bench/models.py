"""A model to measure with. Weights do not change the speed, so random ones do where the published ones are not at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torchvision
from safetensors.torch import save_file

from streamd.errors import StreamdError


def of_name(name: str, folder: Path) -> dict[str, Any]:
    """The configuration of a model: `efficientnet-lite0`, or any torchvision classification model, with random weights kept in `folder`.

    Raises StreamdError when there is no such model.
    """
    if name == "efficientnet-lite0":
        return {"builtin": name}
    if name not in torchvision.models.list_models(module=torchvision.models):
        raise StreamdError(f"{name} is no model to measure with; take efficientnet-lite0 or resnet50, say")
    path = folder / f"{name}-random.safetensors"
    if not path.exists():
        torch.manual_seed(0)
        module = torchvision.models.get_model(name, weights=None)
        save_file({key: value.contiguous() for key, value in module.state_dict().items()}, str(path))
    return {"torchvision": name, "weights_file": str(path)}


def device(wanted: str) -> str:
    """`cpu` or `cuda`: what is `wanted`, or with `auto` the GPU where torch finds one."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted
