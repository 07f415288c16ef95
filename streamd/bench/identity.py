"""Pictures that say which camera they are of, and a model that reads it: proof that no picture is taken for another camera's.

The model is torchvision's AlexNet with weights that are set by hand, so that it takes the way of any other model: a file of weights, the
GPU's preprocessing, batches. Only one channel is used. It carries the brightness of nine squares through the convolutions, and the
classifier compares them with the code words of all numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor
from torchvision.models import AlexNet, AlexNet_Weights

NUMBERS = 256
_INPUT_PX = 224
_KEPT = 224 / 256
"""Of the shorter side, after resize and centre crop."""
_SQUARES = 3
"""In each direction: eight bits and their parity."""
_CELL_PX, _FIRST_PX = 64, 31
"""The middles of the squares, in the model's input. The last pooling sees 61 pixels around each of them, and no other square."""
_HALF_PX = 20
_DIM, _BRIGHT = 100, 235
"""Levels of luma: the background is below the one, squares have the other."""
_THRESHOLD = 0.7
"""Between the R'G'B' of the two levels, 0.38 and 1."""
_SHARPNESS = 40.0


def code(number: int) -> list[int]:
    """The nine bits of a number below NUMBERS, row by row. Any two numbers differ in two bits at least."""
    bits = [number >> place & 1 for place in reversed(range(8))]
    return [*bits, sum(bits) % 2]


def mark(luma: NDArray[np.uint8], number: int) -> None:
    """Write a number into a picture [height, width] of limited range, whose background is made dim."""
    height, width = luma.shape
    np.copyto(luma, (16 + luma.astype(np.uint16) * (_DIM - 16) // 255).astype(np.uint8))
    scale = min(width, height) * _KEPT / _INPUT_PX
    for place, bit in enumerate(code(number)):
        row, column = divmod(place, _SQUARES)
        x, y = (side / 2 + (_FIRST_PX + _CELL_PX * at + 0.5 - _INPUT_PX / 2) * scale for side, at in ((width, column), (height, row)))
        if bit:
            reach = _HALF_PX * scale
            luma[round(y - reach) : round(y + reach), round(x - reach) : round(x + reach)] = _BRIGHT


def model(folder: Path) -> dict[str, Any]:
    """The configuration of the model, as under `models.NAME`. Its files are written into `folder`; a label is its own number."""
    weights, labels = folder / "identity.safetensors", folder / "identity.txt"
    save_file(_state(), str(weights))
    labels.write_text("".join(f"{number}\n" for number in range(NUMBERS)))
    return {"torchvision": "alexnet", "weights_file": str(weights), "labels_file": str(labels), "top_k": 1}


def _state() -> dict[str, Tensor]:
    state = {name: torch.zeros_like(value) for name, value in AlexNet(num_classes=NUMBERS).state_dict().items()}
    transforms = AlexNet_Weights.DEFAULT.transforms()
    rgb = torch.tensor([0.299, 0.587, 0.114])
    # The first convolution gives the brightness, 0 to 1, of 5x5 pixels; it undoes the normalisation.
    taps = rgb * torch.tensor(transforms.std) / 25
    state["features.0.weight"][0, :, 3:8, 3:8] = taps[:, None, None]
    state["features.0.bias"][0] = rgb @ torch.tensor(transforms.mean)
    for layer in ("features.3", "features.6", "features.8", "features.10"):
        middle = state[f"{layer}.weight"].shape[-1] // 2
        state[f"{layer}.weight"][0, 0, middle, middle] = 1
    for place in range(_SQUARES**2):
        row, column = divmod(place, _SQUARES)
        state["classifier.1.weight"][place, 2 * row * 6 + 2 * column] = 1  # of channel 0, 6x6
        state["classifier.4.weight"][place, place] = 1
    signs = torch.tensor([code(number) for number in range(NUMBERS)], dtype=torch.float32) * 2 - 1
    state["classifier.6.weight"][:, : _SQUARES**2] = signs * _SHARPNESS
    state["classifier.6.bias"][:] = -signs.sum(1) * _THRESHOLD * _SHARPNESS
    return state
