"""A batch through the model: `launch` issues the work and returns, `collect` waits for it. The only module that knows how a model runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.fx.experimental.optimization import fuse

from streamd.engine.slots import SlotPool
from streamd.models import LoadedModel
from streamd.types import Batch

log = structlog.get_logger(__name__)


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


def _rank(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
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
            probabilities, classes = _rank(self._module(self._pool.rows[rows].permute(0, 3, 1, 2)), self._top_k)
        return Ranked(classes.tolist(), probabilities.tolist())

    def collect(self, ticket: object) -> Ranked:
        """See Runner.collect."""
        assert isinstance(ticket, Ranked)
        return ticket


@dataclass(slots=True)
class _Buffers:
    """What one batch under way uses. Pinned, so that the copies do not wait for the host."""

    slots: Tensor
    rows: NDArray[np.int64]
    """The memory of `slots`."""
    probabilities: Tensor
    classes: Tensor
    done: torch.cuda.Event


@dataclass(frozen=True, slots=True)
class _Graph:
    """The captured work for one batch size, and the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    slots: Tensor
    probabilities: Tensor
    classes: Tensor


class CudaRunner:
    """fp16, channels_last, one CUDA graph a batch size; a batch runs in the next size up. Two batches are under way: while the GPU
    works on one, the host prepares the next.

    Launching a ResNet-50 op by op costs 3.7 ms of host time whatever the batch; replaying its graph costs 4 to 17 us.
    """

    depth = 2

    def __init__(self, model: LoadedModel, pool: SlotPool, *, top_k: int, max_batch: int) -> None:
        self._module = _folded(model.module).half().to(memory_format=torch.channels_last)
        self._pool = pool
        self._top_k = min(top_k, len(model.labels))
        self._device = pool.rows.device
        self._stream = torch.cuda.Stream(self._device, priority=-1)
        self._sizes = batch_sizes(max_batch)
        self._graphs: dict[int, _Graph] = {}
        self._buffers = [self._new_buffers(max_batch) for _ in range(self.depth)]
        self._turn = 0

    def _new_buffers(self, max_batch: int) -> _Buffers:
        slots = torch.zeros(max_batch, dtype=torch.int64, pin_memory=True)
        return _Buffers(
            slots=slots,
            rows=slots.numpy(),
            probabilities=torch.zeros((max_batch, self._top_k), dtype=torch.float32, pin_memory=True),
            classes=torch.zeros((max_batch, self._top_k), dtype=torch.int64, pin_memory=True),
            done=torch.cuda.Event(blocking=True),
        )

    def warm_up(self) -> None:
        """See Runner.warm_up. Captures a graph for each batch size, the largest first, all in one memory pool."""
        torch.backends.cudnn.benchmark = True  # shapes are fixed: one search for each graph
        memory = None
        with torch.inference_mode(), torch.cuda.device(self._device):
            for size in reversed(self._sizes):
                graph, captured = self._capture(size, memory)
                memory = memory or graph.pool()
                self._graphs[size] = captured
        torch.cuda.synchronize(self._device)

    def _capture(self, size: int, memory: object) -> tuple[torch.cuda.CUDAGraph, _Graph]:
        slots = torch.zeros(size, dtype=torch.int64, device=self._device)

        def step() -> tuple[Tensor, Tensor]:
            return _rank(self._module(self._pool.rows.index_select(0, slots).permute(0, 3, 1, 2)), self._top_k)

        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for _ in range(3):  # cudnn's search and lazy initialisation must not fall into the capture
                step()
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=memory, stream=self._stream):  # type: ignore[arg-type]
            probabilities, classes = step()
        return graph, _Graph(graph, slots, probabilities, classes)

    def launch(self, batch: Batch) -> object:
        """See Runner.launch."""
        count = len(batch.samples)
        captured = self._graphs[next(size for size in self._sizes if size >= count)]
        buffers = self._buffers[self._turn]
        self._turn = (self._turn + 1) % self.depth
        size = captured.slots.shape[0]
        rows = [sample.slot for sample in batch.samples]
        buffers.rows[:size] = rows + rows[-1:] * (size - count)
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            for row in rows:
                self._pool.filled[row].wait(self._stream)
            captured.slots.copy_(buffers.slots[:size], non_blocking=True)
            captured.graph.replay()
            buffers.probabilities[:size].copy_(captured.probabilities, non_blocking=True)
            buffers.classes[:size].copy_(captured.classes, non_blocking=True)
            buffers.done.record(self._stream)
        return buffers, count

    def collect(self, ticket: object) -> Ranked:
        """See Runner.collect."""
        assert isinstance(ticket, tuple)
        buffers, count = ticket
        buffers.done.synchronize()
        return Ranked(buffers.classes[:count].tolist(), buffers.probabilities[:count].tolist())


def _folded(module: nn.Module) -> nn.Module:
    """The module with its batch normalisations folded into the convolutions before them: the same function, with fewer kernels.

    Modules that torch.fx cannot trace are returned as they are.
    """
    try:
        return fuse(module)
    except Exception as error:  # noqa: BLE001 - tracing runs the module's own code, which may raise anything
        log.info("model_not_folded", reason=str(error))
        return module


def batch_sizes(max_batch: int) -> list[int]:
    """Powers of two up to `max_batch`, and `max_batch` itself.

    >>> batch_sizes(24)
    [1, 2, 4, 8, 16, 24]
    """
    sizes = [1 << exponent for exponent in range(max_batch.bit_length()) if 1 << exponent < max_batch]
    return [*sizes, max_batch]
