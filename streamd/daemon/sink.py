"""The parent's own sink: for events and states, and for what cameras that are gone from the configuration left on disk."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from streamd import sinks
from streamd.config.types import Config
from streamd.records import Record
from streamd.sinks.base import Sink
from streamd.types import DropReason

_SPOOL_SHARE = 0.1
"""Of `spool.max_bytes`: for events, which are few."""

log = structlog.get_logger()


def parent_sink(config: Config) -> Sink:
    """Not started yet."""
    spool = sinks.spool_place(config, owns=lambda camera: camera not in config.cameras, share=_SPOOL_SHARE)
    return sinks.build(config, written=lambda _acks: None, dropped=_dropped, lost=_lost, found=lambda _camera, _count: None, spool=spool)


def _dropped(records: Sequence[Record]) -> None:
    log.warning("events were given up: the sinks are away and the queue is full", count=len(records))


def _lost(_camera: str | None, count: int, reason: DropReason) -> None:
    log.warning("records that waited on disk were given up", count=count, reason=reason)
