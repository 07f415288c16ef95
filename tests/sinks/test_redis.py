"""What Redis holds afterwards, whatever happens to it or to the connection."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs
from support.proxy import Proxy
from support.records import NOW_MS, event, result, state
from support.wait import wait_until_async

from streamd.config.types import RedisConfig
from streamd.records import EventKind, Phase
from streamd.sinks import redis as redis_sink
from streamd.sinks.redis import RedisSink

CANARY = "canary-5up3r:s3cr3t@/"


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(redis_sink, "TIMEOUT_S", 0.5)


@pytest.fixture
async def started(told):
    """`started(url, max_entries=…)`: a running sink with the test's callbacks."""
    sinks = []

    async def start(url: str, **config) -> RedisSink:
        sink = RedisSink(
            RedisConfig(url=url, **config), written=told.on_written, dropped=told.on_dropped, lost=told.on_lost, found=told.on_found
        )
        sinks.append(sink)
        await sink.start()
        return sink

    yield start
    for sink in sinks:
        await sink.close(timeout_s=0)


def put(sink: RedisSink, sequences, *, camera: str = "door") -> None:
    for sequence in sequences:
        sink.put(result(camera, sequence))


async def until(fact: Callable[[], object], what: str = "the test's condition") -> None:
    await wait_until_async(fact, what=what)


def stream(server, camera: str = "door") -> list[int]:
    """The sequence numbers in a camera's stream, in order."""
    return [json.loads(fields["data"])["sequence"] for _, fields in server.client().xrange(f"streamd:results:{camera}")]


# --- keys, fields, ids


async def test_a_result_can_be_read_without_parsing_json(redis_server, started, told):
    sink = await started(redis_server.url)
    sink.put(result(sequence=1, labels=("tabby cat", "dog")))
    sink.put(result(sequence=2, labels=()))
    await until(lambda: len(told.written) == 2)
    (first_id, first), (_, second) = redis_server.client().xrange("streamd:results:door")
    assert first_id == f"{NOW_MS + 40}-0"
    assert (first["label"], first["score"], json.loads(first["data"])["labels"][1]["label"]) == ("tabby cat", "0.75", "dog")
    assert (second["label"], float(second["score"])) == ("", 0)


async def test_events_and_states_have_their_keys(redis_server, started, told):
    sink = await started(redis_server.url, prefix="other:")
    sink.put(event(kind=EventKind.REFUSED))
    sink.put(state("yard", phase=Phase.REFUSED))
    await until(lambda: len(told.written) == 2)
    client = redis_server.client()
    ((entry_id, fields),) = client.xrange("other::events")
    assert (entry_id, fields["kind"], fields["camera"], json.loads(fields["data"])["kind"]) == (f"{NOW_MS}-0", "refused", "door", "refused")
    assert json.loads(client.hget("other::cameras", "yard"))["phase"] == "refused"


async def test_ids_increase_while_the_clock_jumps(redis_server, started, told):
    sink = await started(redis_server.url)
    clock = [NOW_MS, NOW_MS, NOW_MS + 5, NOW_MS - 3_600_000, 0, NOW_MS + 5, NOW_MS + 6]
    for sequence, at_ms in enumerate(clock):
        sink.put(result(sequence=sequence, captured_ms=at_ms))
    await until(lambda: len(told.written) == len(clock))
    assert stream(redis_server) == list(range(len(clock)))


async def test_after_a_restart_ids_go_on_above_those_of_before(redis_server, started, told):
    put(await started(redis_server.url), [100])
    await until(lambda: len(told.written) == 1)
    put(await started(redis_server.url), [1, 2])  # captured before that, says the clock
    await until(lambda: len(told.written) == 3)
    assert stream(redis_server) == [100, 1, 2]


async def test_another_writer_is_evaded_and_named_once(redis_server, started, told):
    sink = await started(redis_server.url)
    with capture_logs() as logs:
        for round_ in range(3):
            redis_server.client().xadd("streamd:results:door", {"x": "y"}, id=f"{NOW_MS + 10**9 * (round_ + 1)}-0")
            put(sink, [round_])
            await until(lambda expected=round_ + 1: len(told.written) == expected)
    assert len(redis_server.client().xrange("streamd:results:door")) == 6
    assert [log["event"] for log in logs] == ["redis_stream_has_another_writer"]


async def test_streams_are_capped(redis_server, started, told):
    put(await started(redis_server.url, max_entries=100), range(1000))
    await until(lambda: len(told.written) == 1000)
    assert 100 <= redis_server.client().xlen("streamd:results:door") < 300


async def test_of_states_that_wait_only_the_latest_is_written(own_redis, started, told):
    own_redis.kill()
    sink = await started(own_redis.url)
    for phase in (Phase.CONNECTING, Phase.UP, Phase.DOWN):
        sink.put(state(phase=phase))
    assert sink.queued == 1
    own_redis.start()
    await until(lambda: told.written)
    assert [record.phase for record in told.written] == [Phase.DOWN]


async def test_subscribers_get_every_record_on_the_channel_of_its_key(redis_server, started, told):
    with redis_server.client().pubsub() as subscriber:
        subscriber.psubscribe("streamd:*")
        assert subscriber.get_message(timeout=5)["type"] == "psubscribe"
        sink = await started(redis_server.url, pubsub=True)
        for record in (result(), event(), state()):
            sink.put(record)
        await until(lambda: len(told.written) == 3)
        messages = [subscriber.get_message(timeout=5) for _ in range(3)]
    assert {message["channel"] for message in messages} == {"streamd:results:door", "streamd:events", "streamd:cameras"}
    assert [json.loads(message["data"])["camera"] for message in messages] == ["door"] * 3


# --- connections that break


async def test_a_killed_redis_loses_and_doubles_nothing_that_was_not_acknowledged(own_redis, started, told):
    sink = await started(own_redis.url)
    put(sink, range(100))
    await until(lambda: len(told.written) == 100)
    own_redis.kill()
    put(sink, range(100, 400))
    await until(lambda: not sink.connected)
    own_redis.start()
    put(sink, range(400, 500))
    await until(lambda: len(told.written) == 500)
    assert stream(own_redis) == told.written_sequences[100:] == list(range(100, 500))


async def test_a_redis_that_hangs_loses_and_doubles_nothing(own_redis, started, told):
    """What was sent to the hanging server is still in its sockets when it goes on."""
    sink = await started(own_redis.url)
    put(sink, range(10))
    await until(lambda: len(told.written) == 10)
    own_redis.stop()
    try:
        put(sink, range(10, 200))
        await until(lambda: sink.last_error, "the sink notices")
        put(sink, range(200, 300))
    finally:
        own_redis.cont()
    await until(lambda: len(told.written) == 300)
    assert stream(own_redis) == list(range(300))
    assert sorted(told.written_sequences) == list(range(300))


async def test_a_lost_reply_doubles_nothing(redis_server, started, told):
    lost = []

    def every_second_pipeline(request: bytes) -> bool:
        if b"XADD" in request:
            lost.append(request)
        return b"XADD" in request and len(lost) % 2 == 1

    async with Proxy(redis_server.port, cut_reply=every_second_pipeline) as proxy:
        sink = await started(proxy.url)
        for first in range(0, 90, 30):
            put(sink, range(first, first + 30))
            await until(lambda expected=first + 30: len(told.written) == expected)
        await sink.close(timeout_s=1)
        assert proxy.connections >= 3
    assert stream(redis_server) == list(range(90))
    assert sorted(told.written_sequences) == list(range(90))


async def test_an_idle_connection_that_redis_closed_is_replaced_without_a_word(redis_server, started, told, monkeypatch):
    monkeypatch.setattr(redis_sink, "IDLE_S", 0.0)
    sink = await started(redis_server.url)
    put(sink, [0])
    await until(lambda: told.written)
    client = redis_server.client()
    for connection in client.client_list():
        if connection["name"] == "streamd":
            client.client_kill_filter(_id=connection["id"])
    with capture_logs() as logs:
        put(sink, [1])
        await until(lambda: len(told.written) == 2)
    assert logs == []


async def test_close_does_not_wait_longer_than_it_may_for_a_redis_that_hangs(own_redis, started):
    sink = await started(own_redis.url)
    own_redis.stop()
    put(sink, range(5))
    began_s = time.monotonic()
    assert await sink.close(timeout_s=0.2) == 5
    assert time.monotonic() - began_s < 1
    own_redis.cont()


async def test_what_was_sent_is_not_dropped_from_a_full_queue(own_redis, started, told):
    sink = await started(own_redis.url, max_queue=10)
    put(sink, [0])
    await until(lambda: told.written)
    own_redis.stop()
    put(sink, [1])
    await until(lambda: sink.last_error, "the sink has sent it, and had no reply")
    put(sink, range(2, 30))
    own_redis.cont()
    assert told.dropped_sequences == list(range(2, 21))[: len(told.dropped_sequences)]
    await until(lambda: len(told.written) + len(told.dropped) == 30)
    assert stream(own_redis) == [0, 1, *range(21, 30)]


# --- errors that Redis replies


async def test_a_full_redis_is_waited_for(own_redis, started, told):
    client = own_redis.client()
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1kb")
    sink = await started(own_redis.url)
    put(sink, range(50))
    put(sink, range(50), camera="yard")
    with capture_logs() as logs:
        await until(lambda: sink.last_error)
    assert "OOM" in sink.last_error
    assert sink.connected
    client.config_set("maxmemory", "0")
    await until(lambda: len(told.written) == 100)
    assert stream(own_redis) == stream(own_redis, "yard") == list(range(50))
    assert sink.last_error is None
    assert [log["event"] for log in logs] == ["redis_away"]


async def test_a_replica_is_waited_for_to_become_the_master(own_redis, started, told):
    client = own_redis.client()
    client.replicaof("127.0.0.1", "1")
    sink = await started(own_redis.url)
    put(sink, range(5))
    sink.put(state())
    await until(lambda: sink.last_error)
    assert "READONLY" in sink.last_error
    client.replicaof("NO", "ONE")
    await until(lambda: len(told.written) == 6)
    assert stream(own_redis) == list(range(5))


async def test_a_key_of_another_type_stops_one_camera_and_not_the_others(redis_server, started, told):
    client = redis_server.client()
    client.set("streamd:results:door", "a text")
    sink = await started(redis_server.url)
    with capture_logs() as logs:
        for sequence in range(20):
            put(sink, [sequence], camera="door")
            put(sink, [sequence], camera="yard")
        await until(lambda: len(told.written) == 20)
        assert stream(redis_server, "yard") == list(range(20))
        assert sink.queued == 20
        client.delete("streamd:results:door")
        await until(lambda: len(told.written) == 40)
    assert stream(redis_server) == list(range(20))
    assert [(log["event"], log["place"]) for log in logs] == [
        ("redis_away", "streamd:results:door"),
        ("redis_back", "streamd:results:door"),
    ]
    assert "WRONGTYPE" in logs[0]["reason"]


async def test_a_user_without_permission_for_a_channel_still_writes_the_stream(redis_server, started, told):
    client = redis_server.client()
    client.acl_setuser("writer", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all"], reset_channels=True)
    try:
        sink = await started(redis_server.url, username="writer", password=SecretStr("pw"), pubsub=True)
        put(sink, range(3))
        await until(lambda: len(told.written) == 3)
        assert "PUBLISH streamd:results:door: NOPERM" in sink.last_error
    finally:
        client.acl_deluser("writer")
    assert stream(redis_server) == [0, 1, 2]


# --- what is said


async def test_an_absence_is_one_line_and_the_return_another(own_redis, started, told):
    own_redis.kill()
    with capture_logs() as logs:
        sink = await started(own_redis.url)
        put(sink, range(7))
        await until(lambda: sink.last_error)
        own_redis.start()
        await until(lambda: len(told.written) == 7)
    away, back = logs
    assert (away["event"], away["reason"]) == ("redis_away", f"{own_redis.url}: Connection refused")
    assert away["queued"] == back["queued"] == 7
    assert (back["event"], back["was"]) == ("redis_back", away["reason"])
    assert back["away_s"] > 0
    assert sink.last_error is None


async def test_a_wrong_password_is_named_and_appears_nowhere(redis_server, started, told):
    client = redis_server.client()
    client.acl_setuser("camera-writer", enabled=True, passwords=["+right"], keys=["*"], channels=["*"], commands=["+@all"])
    try:
        with capture_logs() as logs:
            sink = await started(redis_server.url, username="camera-writer", password=SecretStr(CANARY))
            put(sink, [0])
            await until(lambda: logs)
            assert "invalid username-password pair" in sink.last_error
            client.acl_setuser("camera-writer", enabled=True, passwords=[f"+{CANARY}"])
            await until(lambda: told.written)
    finally:
        client.acl_deluser("camera-writer")
    said = f"{logs} {sink.last_error} {sink._address!r} {sink._address}"
    assert CANARY not in said
    assert "s3cr3t" not in said


async def test_a_callback_that_raises_stops_nothing(redis_server, told):
    def raises(acks):
        told.on_written(acks)
        raise RuntimeError("a bug of the caller's")

    sink = RedisSink(RedisConfig(url=redis_server.url), written=raises, dropped=told.on_dropped, lost=told.on_lost, found=told.on_found)
    with capture_logs() as logs:
        await sink.start()
        put(sink, [0])
        await until(lambda: len(told.written) == 1)
        put(sink, [1])
        await until(lambda: len(told.written) == 2)
        assert await sink.close(timeout_s=5) == 0
    assert "redis_sink_failed" in [log["event"] for log in logs]
    assert stream(redis_server) == [0, 1]
