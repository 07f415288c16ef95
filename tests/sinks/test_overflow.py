"""Records that go to disk while a real Redis cannot take them, and come back."""

from __future__ import annotations

import asyncio
import json

import pytest
from structlog.testing import capture_logs
from support.records import event, result
from support.wait import wait_until_async as until

from streamd.config.types import RedisConfig, SpoolConfig
from streamd.sinks import overflow
from streamd.sinks import redis as redis_sink
from streamd.sinks.overflow import SpoolPlace
from streamd.sinks.redis import RedisSink
from streamd.types import DropReason

DOOR, YARD = "streamd:results:door", "streamd:results:yard"


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(redis_sink, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(overflow, "SPILL_AFTER_S", 0.05)


@pytest.fixture
async def started(tmp_path, told):
    """`started(url, …)`: a running sink with a spool, shared by all sinks of the test."""
    sinks = []

    async def start(url: str, *, owns=lambda _camera: True, share: float = 1.0, max_queue: int = 50_000, **spool) -> RedisSink:
        place = SpoolPlace(tmp_path / "spool.sqlite3", SpoolConfig(**spool), share=share, owns=owns)
        config = RedisConfig(url=url, max_queue=max_queue)
        sink = RedisSink(config, written=told.on_written, dropped=told.on_dropped, lost=told.on_lost, found=told.on_found, spool=place)
        sinks.append(sink)
        await sink.start()
        return sink

    yield start
    for sink in sinks:
        await sink.close(timeout_s=0)


def put(sink, sequences, *, camera="door") -> None:
    for sequence in sequences:
        sink.put(result(camera, sequence))


def sequences(server, key=DOOR) -> list[int]:
    return [json.loads(fields["data"])["sequence"] for _, fields in server.client().xrange(key)]


def on_disk(sink) -> int:
    return sink._queue.on_disk


async def test_while_redis_is_away_records_go_to_disk_and_come_back_in_order_once(own_redis, started, told):
    own_redis.kill()
    sink = await started(own_redis.url)
    put(sink, range(300))
    put(sink, range(50), camera="yard")
    sink.put(event())
    await until(lambda: on_disk(sink) == 351, what="all is on disk")
    put(sink, range(300, 400))
    assert sink.queued == 451
    own_redis.start()
    await until(lambda: len(told.written) == 451, what="all is written")
    assert (sequences(own_redis), sequences(own_redis, YARD)) == (list(range(400)), list(range(50)))
    assert own_redis.client().xlen("streamd:events") == 1
    assert (sink.queued, on_disk(sink), told.dropped, told.lost) == (0, 0, [], [])


async def test_a_record_that_was_on_disk_has_no_waiting_time(own_redis, started, told):
    own_redis.kill()
    sink = await started(own_redis.url)
    put(sink, [0])
    await until(lambda: on_disk(sink) == 1, what="it is on disk")
    own_redis.start()
    await until(lambda: told.written, what="it is written")
    assert told.waited_ns == [None]


async def test_new_records_of_a_camera_follow_those_on_disk_and_other_cameras_do_not_wait(own_redis, started, told):
    client = own_redis.client()
    client.set(DOOR, "not a stream")
    sink = await started(own_redis.url)
    put(sink, range(10))
    await until(lambda: on_disk(sink) == 10, what="the refused ones are on disk")
    put(sink, range(10, 20))
    put(sink, range(5), camera="yard")
    await until(lambda: len(told.written) == 5, what="the other camera's are written")
    assert sequences(own_redis, YARD) == list(range(5))
    client.delete(DOOR)
    await until(lambda: len(told.written) == 25, what="all are written")
    assert sequences(own_redis) == list(range(20))


async def test_what_a_killed_process_left_is_sent_by_the_next_one(own_redis, started, told):
    own_redis.kill()
    killed = await started(own_redis.url)
    put(killed, range(100))
    await until(lambda: on_disk(killed) == 100, what="all is on disk")
    killed._task.cancel()  # it does nothing any more, and tidies nothing up
    own_redis.start()
    sink = await started(own_redis.url)
    put(sink, range(100, 110))
    await until(lambda: len(told.written) == 110, what="all is written")
    assert sequences(own_redis) == list(range(110))
    assert told.found == {"door": 100}


async def test_a_record_that_redis_had_when_the_process_was_killed_is_not_doubled(own_redis, started, told, monkeypatch):
    own_redis.kill()
    killed = await started(own_redis.url)
    put(killed, range(20))
    await until(lambda: on_disk(killed) == 20, what="all is on disk")

    stopped = asyncio.Event()

    async def stops_here(_entries):
        stopped.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(killed._overflow, "remove", stops_here)  # after Redis took them, before their rows are gone
    own_redis.start()
    await stopped.wait()
    assert sequences(own_redis) == list(range(20))
    sink = await started(own_redis.url)
    put(sink, [20])
    await until(lambda: len(told.written) == 21, what="all count as written")
    assert sequences(own_redis) == list(range(21))


async def test_a_process_sends_only_what_is_its_own(own_redis, started, told):
    own_redis.kill()
    first = await started(own_redis.url)
    put(first, range(10))
    put(first, range(10), camera="yard")
    await first.close(timeout_s=0)
    own_redis.start()
    await started(own_redis.url, owns=lambda camera: camera == "yard")
    await until(lambda: len(told.written) == 10, what="its own are written")
    assert (sequences(own_redis), sequences(own_redis, YARD)) == ([], list(range(10)))


async def test_at_the_end_what_redis_does_not_take_is_on_disk(own_redis, started, told):
    own_redis.kill()
    sink = await started(own_redis.url)
    put(sink, range(10))
    with capture_logs() as logs:
        assert await sink.close(timeout_s=2) == 0
    assert [(entry["event"], entry["count"]) for entry in logs if entry["event"] == "results_wait_in_spool"] == [
        ("results_wait_in_spool", 10)
    ]
    own_redis.start()
    await started(own_redis.url)
    await until(lambda: len(told.written) == 10, what="the next process writes them")
    assert sequences(own_redis) == list(range(10))


async def test_without_room_the_oldest_go_and_are_counted(own_redis, started, told):
    own_redis.kill()
    sink = await started(own_redis.url, max_bytes=60_000)
    put(sink, range(1000))
    await until(lambda: sum(count for _, count, _ in told.lost) > 800, what="there is no more room")
    own_redis.start()
    lost = lambda: sum(count for _, count, _ in told.lost)  # noqa: E731
    await until(lambda: len(told.written) + lost() == 1000, what="each is written or counted")
    assert sequences(own_redis) == list(range(lost(), 1000))
    assert {why for _, _, why in told.lost} == {DropReason.SINK_FULL}
    assert {camera for camera, _, _ in told.lost} == {"door"}


async def test_with_stop_live_the_newest_go(own_redis, started, told):
    own_redis.kill()
    sink = await started(own_redis.url, max_bytes=1000, on_full="stop_live")
    put(sink, range(10))
    await until(lambda: on_disk(sink) == 10, what="all is on disk")
    put(sink, range(10, 15))
    assert told.dropped_sequences == [10, 11, 12, 13, 14]
    own_redis.start()
    await until(lambda: len(told.written) == 10, what="what was kept is written")
    put(sink, [15])
    await until(lambda: len(told.written) == 11, what="there is room again")
    assert sequences(own_redis) == [*range(10), 15]


async def test_what_waited_too_long_is_counted_as_expired(own_redis, started, told):
    own_redis.kill()
    sink = await started(own_redis.url, max_age=0.5)
    put(sink, range(10))
    await until(lambda: told.lost, what="they expire")
    assert told.lost == [("door", 10, DropReason.EXPIRED)]
    own_redis.start()
    put(sink, [10])
    await until(lambda: told.written, what="later ones are written")
    assert sequences(own_redis) == [10]


async def test_replay_is_as_fast_as_allowed(own_redis, started, told):
    own_redis.kill()
    sink = await started(own_redis.url, replay_rate=100)
    put(sink, range(250))
    await until(lambda: on_disk(sink) == 250, what="all is on disk")
    own_redis.start()
    await until(lambda: len(told.written) >= 100, what="the first second's are written")
    assert len(told.written) < 250
    put(sink, range(5), camera="yard")
    await until(lambda: sequences(own_redis, YARD) == list(range(5)), what="another camera's are written meanwhile")
    assert len(told.written) < 255
    await until(lambda: len(told.written) == 255, what="all is written")
    assert sequences(own_redis) == list(range(250))


async def test_a_redis_that_is_too_slow_does_not_fill_the_memory(own_redis, started, told, monkeypatch):
    monkeypatch.setattr(overflow, "SPILL_AT", 1000)
    sink = await started(own_redis.url, max_queue=3000)
    for first in range(0, 20_000, 1000):
        put(sink, range(first, first + 1000))
        await until(lambda: sink._queue.in_memory < 1500, what="memory is relieved")
    await until(lambda: len(told.written) == 20_000, what="all is written")
    assert told.dropped == []
    assert sequences(own_redis)[-1] == 19_999


async def test_without_a_disk_records_wait_in_memory(own_redis, told, tmp_path):
    own_redis.kill()
    (tmp_path / "file").write_text("in the way")
    place = SpoolPlace(tmp_path / "file" / "spool.sqlite3", SpoolConfig(), share=1.0, owns=lambda _camera: True)
    callbacks = {"written": told.on_written, "dropped": told.on_dropped, "lost": told.on_lost, "found": told.on_found}
    sink = RedisSink(RedisConfig(url=own_redis.url, max_queue=5), **callbacks, spool=place)
    with capture_logs() as logs:
        await sink.start()
        put(sink, range(7))
        await until(lambda: "spool_away" in [entry["event"] for entry in logs], what="the log says so")
    assert told.dropped_sequences == [0, 1]
    own_redis.start()
    await until(lambda: len(told.written) == 5, what="the rest is written")
    assert await sink.close(timeout_s=2) == 0
    assert sequences(own_redis) == [2, 3, 4, 5, 6]
