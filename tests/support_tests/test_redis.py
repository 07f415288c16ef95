import pytest
import redis
from support.redis import RedisServer
from support.wait import wait_until


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_finds_the_shared_server_empty(redis_server: RedisServer, turn):
    client = redis_server.client()
    assert client.dbsize() == 0
    client.set("key", turn)
    assert redis_server.cli("GET", "key") == str(turn)


def test_a_url_reaches_the_server(redis_server: RedisServer):
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.ping()


def test_a_stopped_server_takes_connections_and_answers_nothing_until_it_goes_on(own_redis: RedisServer):
    own_redis.stop()
    client = own_redis.client(timeout_s=0.2)
    with pytest.raises(redis.TimeoutError):
        client.ping()
    own_redis.cont()
    assert own_redis.client().ping()


def test_a_killed_server_comes_back_empty_on_the_same_port(own_redis: RedisServer):
    client, port = own_redis.client(), own_redis.port
    client.set("key", 1)
    own_redis.kill()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    own_redis.start()
    assert own_redis.port == port
    assert wait_until(lambda: client.dbsize() == 0, what="the server is empty")
