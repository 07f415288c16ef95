"""A batch through the model on a GPU, from CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamd.engine import optimize
from streamd.engine.runner import Ranked, batch_sizes, rank
from streamd.engine.slots import SlotPool
from streamd.models import LoadedModel
from streamd.types import Batch


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
    """One CUDA graph a batch size; a batch runs in the next size up. Two batches are under way: while the GPU works on one, the host
    prepares the next.

    Launching a ResNet-50 op by op costs 3.7 ms of host time whatever the batch; replaying its graph costs 4 to 17 us.
    """

    depth = 2

    def __init__(self, model: LoadedModel, pool: SlotPool, *, top_k: int, max_batch: int) -> None:
        self._model = model
        self._module = optimize.for_gpu(model)
        self._dtype = optimize.DTYPES[model.precision]
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
        """See Runner.warm_up. Captures a graph for each batch size, the largest first, all in one memory pool.

        Raises ModelError when torch.compile fails.
        """
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
            return rank(self._module(self._pool.rows.index_select(0, slots).to(self._dtype).permute(0, 3, 1, 2)), self._top_k)

        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for _ in range(3):  # compilation, cudnn's search and lazy initialisation must not fall into the capture
                self._try(step)
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=memory, stream=self._stream):  # type: ignore[arg-type]
            probabilities, classes = step()
        return graph, _Graph(graph, slots, probabilities, classes)

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:
            if self._model.compile:
                raise optimize.compile_failed(self._model.name, error) from error
            raise

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
            for event in {self._pool.filled[row] for row in rows}:  # rows that were filled together share one
                event.wait(self._stream)
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
