"""Any classification model of torchvision by name, with its published weights or a local file of weights. No detection, no segmentation."""

from __future__ import annotations

import difflib
import http.client
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models import get_model, get_model_weights, list_models

from streamd.config.types import ModelConfig
from streamd.errors import ModelError
from streamd.models.base import LoadedModel
from streamd.models.weights_file import read_labels, read_state_dict
from streamd.preprocess.spec import InputSpec

_AUXILIARY_HEADS = {"googlenet": "aux1.", "inception_v3": "AuxLogits."}
"""The two models that have more outputs while they are trained; a file of weights may hold them or not."""


def load(name: str, config: ModelConfig, *, architecture: str) -> LoadedModel:
    """The model that torchvision calls `architecture`, under the key `name`. Raises ModelError."""
    weights = _find_weights(architecture, config.weights, key=f"models.{name}")
    published_labels: tuple[str, ...] = tuple(weights.meta["categories"])
    if config.weights_file is None:
        module, outputs = _with_published(architecture, weights, key=f"models.{name}.weights"), len(published_labels)
    else:
        module, outputs = _with_file(architecture, config.weights_file, key=f"models.{name}.weights_file")
    if config.labels_file is not None:
        labels, origin = read_labels(config.labels_file, key=f"models.{name}.labels_file"), str(config.labels_file)
    else:
        labels, origin = published_labels, str(weights)
    if len(labels) != outputs:
        raise ModelError(
            f"models.{name}.labels_file: the model has {outputs} outputs, but {origin} names {len(labels)} classes; "
            f"give a labels_file with {outputs} lines, in the order of the outputs"
        )
    return LoadedModel(name=name, module=module, labels=labels, input=_input_spec(weights.transforms()))


def _find_weights(architecture: str, weights: str, *, key: str) -> Any:
    """The member of torchvision's weights enum; it carries labels, transforms and where the file is."""
    architectures = list_models(module=torchvision.models)
    if architecture not in architectures:
        raise ModelError(
            f"{key}.torchvision: {architecture!r} is no classification model of torchvision{_close(architecture, architectures)}"
        )
    # VGG-16 has weights for its features alone, without classes.
    members = {member: value for member, value in get_model_weights(architecture).__members__.items() if value.meta["categories"]}
    if weights not in members:
        raise ModelError(f"{key}.weights: {architecture} has no weights {weights!r}; it has {', '.join(members)}")
    return members[weights]


def _input_spec(transforms: Any) -> InputSpec:
    crop, mean, std = transforms.crop_size[0], transforms.mean, transforms.std
    return InputSpec(
        resize=transforms.resize_size[0],
        crop=(crop, crop),
        interpolation=transforms.interpolation.value,
        mean=(mean[0], mean[1], mean[2]),
        std=(std[0], std[1], std[2]),
    )


def _with_published(architecture: str, weights: Any, *, key: str) -> nn.Module:
    file_name = Path(urlsplit(weights.url).path).name
    cached = Path(torch.hub.get_dir()) / "checkpoints" / file_name
    if not cached.exists():
        _download(weights, cached, key=key)
    read_state_dict(cached, key=key)  # torchvision reads it once more, but as a full pickle: nothing else may be in it
    module: nn.Module = get_model(architecture, weights=weights, progress=False)
    return module


def _download(weights: Any, path: Path, *, key: str) -> None:
    hash_prefix = re.search(r"-([0-9a-f]{8,})\.", path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not `weights.get_state_dict`, which prints to standard output.
        torch.hub.download_url_to_file(weights.url, os.fspath(path), hash_prefix[1] if hash_prefix else None, progress=False)
    except (OSError, http.client.HTTPException, RuntimeError) as error:  # RuntimeError: what came has another hash
        raise ModelError(
            f"{key}: {weights} cannot be downloaded ({error}); copy {path.name} from a machine that has it to {path}, or set `weights_file`"
        ) from error


def _with_file(architecture: str, path: Path, *, key: str) -> tuple[nn.Module, int]:
    """The model with the weights in `path`, and how many classes these have."""
    state = read_state_dict(path, key=key)
    options: dict[str, Any] = {}
    if architecture in _AUXILIARY_HEADS:
        has_heads = any(entry.startswith(_AUXILIARY_HEADS[architecture]) for entry in state)
        options = {"aux_logits": has_heads, "transform_input": True, "init_weights": False}
    module: nn.Module = get_model(architecture, weights=None, **options)
    wanted = module.state_dict()
    # In each of torchvision's classification models the last layer with weights is the classifier.
    classifier = [entry for entry in wanted if entry.endswith(".weight")][-1]
    if classifier in state and len(state[classifier]) != len(wanted[classifier]):
        module = get_model(architecture, weights=None, num_classes=len(state[classifier]), **options)
        wanted = module.state_dict()
    _check_fit(architecture, state, wanted, origin=f"{key}: {path}")
    module.load_state_dict(state)
    return module, len(wanted[classifier])


def _check_fit(architecture: str, state: dict[str, Tensor], wanted: dict[str, Tensor], *, origin: str) -> None:
    problems = {
        "lacks": [entry for entry in wanted if entry not in state],
        "has too much": [entry for entry in state if entry not in wanted],
        "has in another shape": [entry for entry in wanted if entry in state and state[entry].shape != wanted[entry].shape],
    }
    found = [f"{problem} {_some(entries)}" for problem, entries in problems.items() if entries]
    if found:
        raise ModelError(f"{origin} does not fit {architecture}: it {'; it '.join(found)}")


def _some(entries: list[str]) -> str:
    return ", ".join(entries[:3]) + (f" and {len(entries) - 3} more" if len(entries) > 3 else "")


def _close(wanted: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(wanted, list(known), n=3)
    return f"; did you mean {' or '.join(close)}?" if close else "; https://pytorch.org/vision/stable/models.html lists them"
