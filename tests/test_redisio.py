"""Connections to Redis, their errors in plain words, and what they never do again."""

from __future__ import annotations

import asyncio

import pytest
from support.proxy import Proxy

from streamd.redisio import Address, Backoff, Connection, RedisAddressError, RedisRefused, RedisUnavailable, ServerError

PASSWORD = "canary-p4ss"


async def open_error(url: str, **address) -> str:
    with pytest.raises(RedisUnavailable) as caught:
        async with Connection(Address(url, **address), timeout_s=0.2):
            pass
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://h", "must specify one of the following schemes"),
        ("redis://h:99999", "Port out of range"),
        ("redis://h?timeouts=3", "timeouts"),
        (f"redis://u:{PASSWORD}@h?wibble=1", "redis://***@h"),
        (f"redis://h?wibble=1&password={PASSWORD}", "password=***"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused_in_words_without_credentials(url, words):
    with pytest.raises(RedisAddressError) as caught:
        Address(url)
    assert words in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_an_address_shows_no_credentials():
    address = Address(f"redis://u:{PASSWORD}@h:1/2", password=PASSWORD)
    assert (str(address), PASSWORD in repr(address)) == ("redis://***@h:1/2", False)


async def test_errors_of_the_system_are_given_in_its_own_words(tmp_path):
    assert await open_error("redis://127.0.0.1:1/0") == "redis://127.0.0.1:1/0: Connection refused"
    assert await open_error(f"unix://{tmp_path}/no.sock") == f"unix://{tmp_path}/no.sock: No such file or directory"


async def test_a_server_that_does_not_answer_is_given_up_in_time(own_redis):
    async with Connection(Address(own_redis.url), timeout_s=0.2) as connection:
        own_redis.stop()
        with pytest.raises(RedisUnavailable, match=r"no answer within 0\.2 s"):
            await connection.execute([("PING",)])
    assert await open_error(own_redis.url) == f"{own_redis.url}: no answer within 0.2 s"
    own_redis.cont()


async def test_what_is_wrong_with_tls_is_said():
    async def speak_plainly(reader, writer) -> None:
        writer.write(b"-ERR what is that\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(speak_plainly, "127.0.0.1", 0) as server:
        error = await open_error(f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert error.endswith(": TLS: wrong version number")


async def test_a_wrong_password_is_told_from_an_absence(redis_server):
    with pytest.raises(RedisRefused) as caught:
        await Connection(Address(redis_server.url, username="nobody", password=PASSWORD)).open()
    assert PASSWORD not in str(caught.value)


async def test_the_password_beside_the_address_is_used(redis_server):
    client = redis_server.client()
    client.acl_setuser("someone", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+@all"])
    try:
        async with Connection(Address(redis_server.url, username="someone", password=PASSWORD)) as connection:
            assert await connection.execute([("ACL", "WHOAMI")]) == [b"someone"]
    finally:
        client.acl_deluser("someone")


async def test_replies_come_in_order_with_errors_in_their_places(redis_server):
    async with Connection(Address(redis_server.url)) as connection:
        replies = await connection.execute([("SET", "a", 1), ("LPUSH", "a", 1), ("GET", "a"), ("GET", "no"), ("WIBBLE",)])
    assert replies[0] == b"OK"
    assert isinstance(replies[1], ServerError)
    assert (replies[1].code, replies[2], replies[3]) == ("WRONGTYPE", b"1", None)
    assert isinstance(replies[4], ServerError)
    assert (replies[4].code, "unknown command" in replies[4].message) == ("ERR", True)


@pytest.mark.parametrize("options", ["", "?protocol=3", "?decode_responses=True", "?socket_timeout=0.001"])
async def test_replies_look_the_same_whatever_the_address_asks_for(redis_server, options):
    async with Connection(Address(redis_server.url + options)) as connection:
        await connection.execute([("XADD", "s", "1-1", "a", "b"), ("HSET", "h", "k", "v")])
        replies = await connection.execute([("XREAD", "STREAMS", "s", "0"), ("HGETALL", "h"), ("CONFIG", "SET", "maxmemory", "0")])
    assert replies == [[[b"s", [[b"1-1", [b"a", b"b"]]]]], [b"k", b"v"], b"OK"]


async def test_a_cancelled_command_leaves_no_reply_for_the_next_one(own_redis):
    connection = Connection(Address(own_redis.url))
    await connection.open()
    own_redis.stop()
    asking = asyncio.create_task(connection.execute([("ECHO", "first")]))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    own_redis.cont()
    await connection.open()
    assert await connection.execute([("ECHO", "second")]) == [b"second"]
    await connection.close()


async def test_closing_gives_up_what_a_server_that_hangs_does_not_take(own_redis):
    connection = Connection(Address(own_redis.url), timeout_s=0.2)
    await connection.open()
    own_redis.stop()
    with pytest.raises(RedisUnavailable):
        await connection.execute([("ECHO", b"x" * 2**25)])
    assert connection._transport.get_write_buffer_size() == 0
    own_redis.cont()


async def test_a_connection_that_broke_says_that_nobody_knows(redis_server):
    async with (
        Proxy(redis_server.port, cut_reply=lambda request: b"INCR" in request) as proxy,
        Connection(Address(proxy.url)) as connection,
    ):
        with pytest.raises(RedisUnavailable):
            await connection.execute([("INCR", "n")])
    assert redis_server.client().get("n") == "1"


def test_backoff_doubles_up_to_its_bound_with_jitter_and_begins_anew():
    backoff = Backoff(first_s=0.1, most_s=5.0)
    for full_s in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
        assert full_s / 2 <= backoff.next_s() <= full_s
    backoff.reset()
    assert backoff.next_s() <= 0.1
