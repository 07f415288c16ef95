"""Every record to several sinks. The first one decides what counts as written and dropped; the others only get copies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from streamd.records import Record
from streamd.sinks.base import Sink


class FanOut:
    """Implements Sink. The sinks' callbacks are the business of who made them."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks

    @property
    def queued(self) -> int:
        """Of the sink that is furthest behind."""
        return max(sink.queued for sink in self._sinks)

    async def start(self) -> None:
        for sink in self._sinks:
            await sink.start()

    def put(self, record: Record) -> None:
        for sink in self._sinks:
            sink.put(record)

    async def close(self, *, timeout_s: float) -> int:
        return max(await asyncio.gather(*(sink.close(timeout_s=timeout_s) for sink in self._sinks)))
