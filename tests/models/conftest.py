"""One small network's weights for all tests: no test here downloads anything."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchvision.models import resnet18


@pytest.fixture(scope="session")
def seven_classes() -> dict[str, Tensor]:
    """The state_dict of an untrained ResNet-18 with seven outputs."""
    torch.manual_seed(7)
    return resnet18(weights=None, num_classes=7).state_dict()


@pytest.fixture
def labels_file(tmp_path: Path) -> Path:
    path = tmp_path / "labels.txt"
    path.write_text("cat\ndog\nbird\nfish\nfrog\nhorse\ncafé\n", encoding="utf-8")
    return path


class _Trap:
    """Unpickled in full, it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (os.fspath(self._path),)


@pytest.fixture
def malicious_pickle(tmp_path: Path) -> Callable[[Path], Path]:
    """Writes a weights file with code in it; returns the path that exists once the code ran."""

    def write(file: Path) -> Path:
        trap = tmp_path / "the-code-ran"
        torch.save({"conv1.weight": _Trap(trap)}, file)
        return trap

    return write
