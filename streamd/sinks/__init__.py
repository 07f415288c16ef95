"""Where records go. `build` makes the sinks that the configuration asks for; base.py says what a sink is."""

from __future__ import annotations

from collections.abc import Sequence

from streamd.config.types import Config
from streamd.records import Record
from streamd.sinks.base import Dropped, Sink, Written
from streamd.sinks.fanout import FanOut
from streamd.sinks.jsonl import JsonlSink
from streamd.sinks.redis import RedisSink

__all__ = ["Sink", "build"]


def build(config: Config, *, written: Written, dropped: Dropped) -> Sink:
    """The sink of `config`. With both Redis and JSON lines it is Redis that is reported to `written` and `dropped`.

    Raises RedisAddressError.
    """
    if config.redis is None:
        assert config.jsonl is not None, "the configuration names at least one"
        return JsonlSink(config.jsonl, written=written, dropped=dropped)
    redis = RedisSink(config.redis, written=written, dropped=dropped)
    if config.jsonl is None:
        return redis
    return FanOut([redis, JsonlSink(config.jsonl, written=_not_counted_as_written, dropped=_not_counted)])


def _not_counted_as_written(_records: Sequence[Record], _acked_ns: int) -> None:
    """Redis counts."""


def _not_counted(_records: Sequence[Record]) -> None:
    """The result is in Redis, or counted when Redis drops it; the sink's own log says that lines are missing."""
