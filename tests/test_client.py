"""Reading what a sink wrote: each entry once, whatever becomes of Redis meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

import pytest
from support.proxy import Proxy
from support.records import NOW_MS, event, result, state
from support.wait import wait_until_async

from streamd import client as client_module
from streamd.client import Client
from streamd.records import encode
from streamd.redisio import RedisRefused, RedisUnavailable
from streamd.sinks.payload import payload


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(client_module, "BLOCK_MS", 50)


def add(server, *sequences: int, camera: str = "door") -> None:
    for sequence in sequences:
        server.client().xadd(f"streamd:results:{camera}", {"data": payload(result(camera, sequence))}, id=f"{NOW_MS + sequence}-0")


async def take(entries, count: int) -> list:
    found = []
    async with contextlib.aclosing(entries), asyncio.timeout(10):
        async for entry in entries:
            found.append(entry)
            if len(found) == count:
                break
    return found


@contextlib.asynccontextmanager
async def reading(entries, server):
    """A list that fills while the block runs; the reader waits in XREAD when it begins."""
    found: list = []

    async def read() -> None:
        async with contextlib.aclosing(entries):
            async for entry in entries:
                found.append(entry)  # noqa: PERF401 - it is looked at meanwhile

    task = asyncio.create_task(read())
    try:
        await wait_until_async(lambda: _waits(server) or task.done(), what="the reader waits")
        yield found
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _waits(server) -> bool:
    return any(connection["cmd"] == "xread" for connection in server.client().client_list())


async def test_from_0_all_that_is_there_is_read_with_its_ids(redis_server):
    add(redis_server, 1, 2)
    entries = await take(Client(redis_server.url).results("door", from_="0"), 2)
    assert [(entry.id, entry.record) for entry in entries] == [(f"{NOW_MS + n}-0", result(sequence=n)) for n in (1, 2)]


async def test_reading_goes_on_after_a_given_id(redis_server):
    add(redis_server, 1, 2, 3)
    entries = await take(Client(redis_server.url).results("door", from_=f"{NOW_MS + 1}-0"), 2)
    assert [entry.record.sequence for entry in entries] == [2, 3]


async def test_unless_said_otherwise_only_new_results_come(redis_server):
    add(redis_server, 1)
    async with reading(Client(redis_server.url).results("door", "yard"), redis_server) as found:
        add(redis_server, 2)
        add(redis_server, 1, camera="yard")
        await wait_until_async(lambda: len(found) == 2, what="both arrive")
    assert sorted((entry.record.camera, entry.record.sequence) for entry in found) == [("door", 2), ("yard", 1)]


async def test_without_names_all_cameras_are_read_those_too_that_come_later(redis_server):
    server = redis_server.client()
    server.hset("streamd:cameras", "door", encode(state("door")))
    add(redis_server, 1)
    seconds, microseconds = server.time()
    async with reading(Client(redis_server.url).results(), redis_server) as found:
        server.xadd("streamd:results:yard", {"data": encode(result("yard", 7))}, id=f"{seconds * 1000 + microseconds // 1000 + 60_000}-0")
        server.hset("streamd:cameras", "yard", encode(state("yard")))
        await wait_until_async(lambda: found, what="the new camera's result arrives")
    assert [(entry.record.camera, entry.record.sequence) for entry in found] == [("yard", 7)]


async def test_without_any_camera_yet_the_reader_waits_for_one(redis_server):
    entries = Client(redis_server.url).results(from_="0")
    reader = asyncio.create_task(take(entries, 1))
    await wait_until_async(
        lambda: any(c["cmd"] == "hkeys" for c in redis_server.client().client_list()), what="the reader looks for cameras"
    )
    add(redis_server, 1)
    redis_server.client().hset("streamd:cameras", "door", encode(state("door")))
    assert [entry.record.sequence for entry in await reader] == [1]


async def test_events_and_states_are_read(redis_server):
    redis_server.client().xadd("other:events", {"data": encode(event())})
    redis_server.client().hset("other:cameras", mapping={"door": encode(state("door")), "yard": encode(state("yard"))})
    reader = Client(redis_server.url, prefix="other")
    assert [entry.record for entry in await take(reader.events(from_="0"), 1)] == [event()]
    assert await reader.cameras() == {"door": state("door"), "yard": state("yard")}


async def test_a_restart_of_redis_is_survived_and_nothing_comes_twice(own_redis, caplog):
    add(own_redis, 1, 2)
    async with reading(Client(own_redis.url).results("door", from_="0"), own_redis) as found:
        own_redis.kill()
        await wait_until_async(lambda: caplog.messages, what="the reader notices")
        own_redis.start()
        add(own_redis, 2, 3)  # 2 as a sink whose reply was lost sends it again
        await wait_until_async(lambda: len(found) == 3, what="the reader goes on")
    assert [entry.record.sequence for entry in found] == [1, 2, 3]
    assert [message.split(",")[0] for message in caplog.messages] == ["Redis is away", "Redis is back"]
    assert caplog.records[0].levelno == logging.WARNING


async def test_a_lost_answer_loses_and_doubles_nothing(redis_server):
    add(redis_server, *range(20))
    answers = iter([True, False, True])
    async with Proxy(redis_server.port, cut_reply=lambda request: b"XREAD" in request and next(answers, False)) as proxy:
        entries = await take(Client(proxy.url).results("door", from_="0"), 20)
    assert [entry.record.sequence for entry in entries] == list(range(20))


async def test_a_reader_that_starts_before_redis_waits_for_it(own_redis, caplog):
    own_redis.kill()
    reader = asyncio.create_task(take(Client(own_redis.url).results("door", from_="0"), 1))
    await wait_until_async(lambda: caplog.messages, what="the reader notices")
    own_redis.start()
    add(own_redis, 1)
    assert len(await reader) == 1


async def test_entries_that_are_not_ours_are_passed_over_with_a_warning(redis_server, caplog):
    server = redis_server.client()
    server.xadd("streamd:results:door", {"x": "y"}, id="1-0")
    server.xadd("streamd:results:door", {"data": json.dumps({"schema": 1})}, id="2-0")
    add(redis_server, 5)
    server.hset("streamd:cameras", mapping={"door": encode(state("door")), "wibble": "{}"})
    reader = Client(redis_server.url)
    assert [entry.record.sequence for entry in await take(reader.results("door", from_="0"), 1)] == [5]
    assert set(await reader.cameras()) == {"door"}
    assert [message.split(" is passed over")[0] for message in caplog.messages] == [
        "streamd:results:door 1-0",
        "streamd:results:door 2-0",
        "streamd:cameras wibble",
    ]


async def test_fields_of_later_versions_are_no_error(redis_server):
    data = json.loads(encode(result())) | {"zone": "gate"}
    redis_server.client().xadd("streamd:results:door", {"data": json.dumps(data)})
    assert [entry.record for entry in await take(Client(redis_server.url).results("door", from_="0"), 1)] == [result()]


async def test_a_key_of_another_type_is_raised(redis_server):
    redis_server.client().set("streamd:results:door", "a text")
    for from_ in ("0", "$"):
        with pytest.raises(RedisRefused, match="WRONGTYPE"):
            await take(Client(redis_server.url).results("door", from_=from_), 1)


async def test_ping_tells_whether_redis_can_be_used(redis_server):
    await Client(redis_server.url).ping()
    with pytest.raises(RedisUnavailable, match="Connection refused"):
        await Client("redis://127.0.0.1:1").ping()
    with pytest.raises(RedisRefused):
        await Client(redis_server.url, username="nobody", password="no").ping()


def test_a_starting_point_that_is_none_is_refused_at_once(redis_server):
    with pytest.raises(ValueError, match="`\\$`, `0` or the id of an entry"):
        Client(redis_server.url).results("door", from_="yesterday")


async def test_no_connection_is_left_when_an_iteration_ends(redis_server):
    add(redis_server, 1)
    await take(Client(redis_server.url).results("door", from_="0"), 1)
    server = redis_server.client()
    await wait_until_async(lambda: "streamd" not in [c["name"] for c in server.client_list()], what="the connection is closed")
