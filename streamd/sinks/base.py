"""What a sink is: a place that records are written to. It never blocks its caller and never raises because the other end is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from streamd.records import Record

Written = Callable[[Sequence[Record], int], None]
"""Called when the other end has acknowledged records, with `time.monotonic_ns()` of the acknowledgement."""
Dropped = Callable[[Sequence[Record]], None]
"""Called with records that the bounded queue had to give up."""


class Sink(Protocol):
    """Used from one asyncio loop."""

    async def start(self) -> None:
        """Begin to write in the background."""
        ...

    @property
    def queued(self) -> int:
        """Records that wait to be written."""
        ...

    def put(self, record: Record) -> None:
        """Queue a record; the oldest queued result makes way when the queue is full."""
        ...

    async def close(self, *, timeout_s: float) -> int:
        """Write what is queued, for `timeout_s` at most; returns how many records were not written."""
        ...
