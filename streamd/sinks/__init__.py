"""Where records go. `build` makes the sinks that the configuration asks for; base.py says what a sink is."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from urllib.parse import quote

from streamd.config.state import state_folder
from streamd.config.types import Config
from streamd.records import Record
from streamd.sinks.base import Ack, Dropped, Found, Lost, Sink, Written
from streamd.sinks.fanout import FanOut
from streamd.sinks.jsonl import JsonlSink
from streamd.sinks.overflow import SpoolPlace
from streamd.sinks.redis import RedisSink

__all__ = ["Sink", "build", "spool_place"]


def build(config: Config, *, written: Written, dropped: Dropped, lost: Lost, found: Found, spool: SpoolPlace | None) -> Sink:
    """The sink of `config`. With both Redis and JSON lines it is Redis that is reported to the callbacks.

    Raises RedisAddressError.
    """
    if config.redis is None:
        assert config.jsonl is not None, "the configuration names at least one"
        return JsonlSink(config.jsonl, written=written, dropped=dropped)
    redis = RedisSink(config.redis, written=written, dropped=dropped, lost=lost, found=found, spool=spool)
    if config.jsonl is None:
        return redis
    return FanOut([redis, JsonlSink(config.jsonl, written=_not_counted_as_written, dropped=_not_counted)])


def spool_place(config: Config, *, owns: Callable[[str | None], bool], share: float) -> SpoolPlace | None:
    """Where a process keeps records on disk; None where the configuration wants none, and without Redis.

    `owns` tells whether what is there of a camera (None: of no camera) is for this process to send; `share` is its part of `max_bytes`.
    """
    if config.redis is None or config.spool is None:
        return None
    # Another Redis has another file: what was made for one is never sent to the other.
    place = f"{quote(config.redis.prefix, safe='')}-{hashlib.sha256(config.redis.url.encode()).hexdigest()[:8]}"
    return SpoolPlace(state_folder(config.state_dir, os.environ) / place / "spool.sqlite3", config.spool, share=share, owns=owns)


def _not_counted_as_written(_acks: Sequence[Ack]) -> None:
    """Redis counts."""


def _not_counted(_records: Sequence[Record]) -> None:
    """The result is in Redis, or counted when Redis drops it; the sink's own log says that lines are missing."""
