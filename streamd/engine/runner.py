"""A batch through the model: `launch` issues the work and returns, `collect` waits for it. Here is the CPU's way to do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from streamd.engine.slots import SlotPool
from streamd.models import LoadedModel
from streamd.types import Batch


@dataclass(frozen=True, slots=True)
class Ranked:
    """The k best classes of each sample, best first."""

    classes: list[list[int]]
    probabilities: list[list[float]]


class Runner(Protocol):
    def warm_up(self) -> None:
        """Do once, before the first batch, whatever is slow the first time."""
        ...

    def launch(self, batch: Batch) -> object:
        """Issue a batch; at most `depth` may be under way."""
        ...

    def collect(self, ticket: object) -> Ranked:
        """Wait for a launched batch. Batches are collected in the order of their launch."""
        ...

    depth: int


def rank(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Probabilities and classes of the best `top_k`, each of shape [batch, top_k]; softmax in float32 over all classes."""
    return logits.float().softmax(dim=1).topk(top_k, dim=1)


class CpuRunner:
    """Plain torch. A batch is done when `launch` returns."""

    depth = 1

    def __init__(self, model: LoadedModel, pool: SlotPool, *, top_k: int) -> None:
        self._module = model.module
        self._pool = pool
        self._top_k = min(top_k, len(model.labels))

    def warm_up(self) -> None:
        """See Runner.warm_up."""
        with torch.inference_mode():
            self._module(self._pool.rows[:1].permute(0, 3, 1, 2))

    def launch(self, batch: Batch) -> Ranked:
        """See Runner.launch."""
        rows = [sample.slot for sample in batch.samples]
        with torch.inference_mode():
            probabilities, classes = rank(self._module(self._pool.rows[rows].permute(0, 3, 1, 2)), self._top_k)
        return Ranked(classes.tolist(), probabilities.tolist())

    def collect(self, ticket: object) -> Ranked:
        """See Runner.collect."""
        assert isinstance(ticket, Ranked)
        return ticket


def batch_sizes(max_batch: int) -> list[int]:
    """Powers of two up to `max_batch`, and `max_batch` itself.

    >>> batch_sizes(24)
    [1, 2, 4, 8, 16, 24]
    """
    sizes = [1 << exponent for exponent in range(max_batch.bit_length()) if 1 << exponent < max_batch]
    return [*sizes, max_batch]
