"""Which sinks a configuration asks for, and what several of them are together."""

from __future__ import annotations

import json

from support.records import result
from support.wait import wait_until_async

from streamd import sinks
from streamd.config.types import Config
from streamd.sinks.jsonl import JsonlSink
from streamd.sinks.redis import RedisSink


def config(**sections) -> Config:
    cameras = {"door": {"url": "rtsp://192.0.2.10/stream"}}
    return Config.model_validate({"models": {"imagenet": {"torchvision": "resnet50"}}, "cameras": cameras, **sections})


def build(told, **sections) -> sinks.Sink:
    return sinks.build(
        config(**sections), written=told.on_written, dropped=told.on_dropped, lost=told.on_lost, found=told.on_found, spool=None
    )


async def test_redis_unless_said_otherwise(told):
    assert isinstance(build(told), RedisSink)


async def test_json_lines_alone(told):
    assert isinstance(build(told, redis=None, jsonl={}), JsonlSink)


async def test_with_both_each_record_goes_to_both_and_is_reported_once(redis_server, tmp_path, told):
    sink = build(told, redis={"url": redis_server.url}, jsonl={"path": str(tmp_path / "out.jsonl")})
    await sink.start()
    for sequence in range(10):
        sink.put(result(sequence=sequence))
    assert sink.queued == 10
    assert await sink.close(timeout_s=5) == 0
    assert told.written_sequences == list(range(10))
    assert redis_server.client().xlen("streamd:results:door") == 10
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == list(range(10))


async def test_with_both_what_redis_gives_up_counts_as_dropped(own_redis, tmp_path, told):
    own_redis.kill()
    sink = build(told, redis={"url": own_redis.url, "max_queue": 4}, jsonl={"path": str(tmp_path / "out.jsonl")})
    await sink.start()
    for sequence in range(10):
        sink.put(result(sequence=sequence))
    assert told.dropped_sequences == list(range(6))
    own_redis.start()
    await wait_until_async(lambda: len(told.written) == 4, what="the rest is written")
    await sink.close(timeout_s=5)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 10
