"""The preallocated memory for preprocessed frames: one row a frame, given out by number and taken back after inference."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class SlotPool:
    """`count` rows of shape [height, width, 3] on `device`; handed out as [3, height, width] views, so that the model reads
    channels_last. Not thread-safe: the engine's lock guards it.
    """

    def __init__(self, count: int, *, height: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self.rows = torch.zeros((count, height, width, 3), dtype=dtype, device=device)
        self.views = [row.permute(2, 0, 1) for row in self.rows]
        """Row by row as [3, height, width]."""
        self._events = [torch.cuda.Event() for _ in range(count)] if device.type == "cuda" else []
        self.filled = list(self._events)
        """Row by row an event, recorded by who fills it; what reads the row on another stream waits for it. None on the CPU."""
        self._free = list(range(count - 1, -1, -1))
        self.count = count

    @property
    def free(self) -> int:
        """How many rows are free."""
        return len(self._free)

    def take(self) -> int | None:
        """A free row's number, or None."""
        return self._free.pop() if self._free else None

    def give_back(self, slot: int) -> None:
        """Free a row. Its pixels may be overwritten from now on."""
        self._free.append(slot)

    def fill(self, slots: Sequence[int], samples: torch.Tensor) -> None:
        """Copy `samples` [slots, height, width, 3] into the rows, on the current CUDA stream, and mark them as filled."""
        index = torch.tensor(slots)
        if self._events:
            index = index.pin_memory().to(self.rows.device, non_blocking=True)  # waits for nothing, as all that is queued here
        self.rows.index_copy_(0, index, samples)
        self.mark_filled(slots)

    def mark_filled(self, slots: Sequence[int]) -> None:
        """What is queued now on the current CUDA stream fills the rows. They share one event, whose own row is free again only after all
        of this work: so it is not recorded anew while another row needs it.
        """
        if self._events:
            event = self._events[slots[0]]
            event.record()
            for slot in slots:
                self.filled[slot] = event

    def await_filled(self, slot: int) -> None:
        """Wait for the pixels of a row that is given up: they may still be on their way, into a row that is another camera's next."""
        if self.filled:
            self.filled[slot].synchronize()
