"""One model for all parity tests, and one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from streamd.config.types import ModelConfig
from streamd.models import LoadedModel, load


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in a decode thread: on a busy machine the products of narrow blocks take up to a second where threads wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def lite0() -> LoadedModel:
    return load("demo", ModelConfig(builtin="efficientnet-lite0"), device="cpu")
