"""What a sink is: a place that records are written to. It never blocks its caller and never raises because the other end is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from streamd.records import Record
from streamd.types import DropReason


class Ack(NamedTuple):
    """The other end has a record."""

    record: Record
    waited_ns: int | None
    """From `put` to the acknowledgement; None where the record was on disk meanwhile."""


Written = Callable[[Sequence[Ack]], None]
"""Called when the other end has acknowledged records."""
Dropped = Callable[[Sequence[Record]], None]
"""Called with records that a full queue in memory had to give up."""
Lost = Callable[[str | None, int, DropReason], None]
"""Called when records are given up on disk: whose they were (None: of no camera), how many, and why."""

Found = Callable[[str | None, int], None]
"""Called at the start: an earlier process left so many records of a camera (None: of no camera) on disk, which are sent now."""


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
