"""A worker as a process of its own, and the daemon's end of its channel."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import msgspec
import pytest

from streamd.config.redaction import reveal
from streamd.config.types import Config
from streamd.worker import main
from streamd.worker.protocol import FromWorker, Start, Stop

DEADLINE_S = 30.0
LITE = {"imagenet": {"builtin": "efficientnet-lite0"}}


def start_message(cameras, *, models=None, engine=None, jsonl="-", redis=None):
    """Start for a worker of these cameras, with EfficientNet-lite0 on the CPU unless said."""
    config = Config.model_validate(
        {
            "redis": redis,
            "jsonl": {"path": str(jsonl)},
            "models": models or LITE,
            "engine": {"device": "cpu", "max_batch": 8, **(engine or {})},
            "cameras": cameras,
        }
    )
    return Start(worker="w0", config=reveal(config), cameras=list(cameras))


def encoded(message) -> bytes:
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(4, "big") + data


class DaemonEnd:
    """The daemon's end of a channel. What the worker sends is kept in `timed`, with its time of arrival."""

    def __init__(self, ours) -> None:
        self._socket = ours
        self._buffer = b""
        self._decode = msgspec.msgpack.Decoder(FromWorker).decode
        self.timed = []

    @property
    def messages(self):
        return [message for _, message in self.timed]

    def first(self, kind):
        return next(message for message in self.messages if isinstance(message, kind))

    def send(self, message) -> None:
        self._socket.sendall(encoded(message))

    def receive(self):
        """The next message; None at the end of the channel."""
        self._socket.settimeout(DEADLINE_S)
        while len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            data = self._read()
            if not data:
                return None
            self._buffer += data
        end = 4 + int.from_bytes(self._buffer[:4], "big")
        message = self._decode(self._buffer[4:end])
        self._buffer = self._buffer[end:]
        self.timed.append((time.monotonic(), message))
        return message

    def _read(self) -> bytes:
        try:
            return self._socket.recv(1 << 16)
        except ConnectionResetError:
            return b""

    def wait_for(self, wanted):
        """The next message for which `wanted` holds: a type, or a function."""
        while True:
            message = self.receive()
            assert message is not None, f"the channel ended without {wanted}: {self.messages}\n{self.log}"
            if isinstance(message, wanted) if isinstance(wanted, type) else wanted(message):
                return message

    def rest(self):
        """The messages up to the end of the channel."""
        found = []
        while (message := self.receive()) is not None:
            found.append(message)
        return found

    def hang_up(self) -> None:
        self._socket.close()

    log = ""


class WorkerProcess(DaemonEnd):
    """A real worker process; it waits for Start."""

    def __init__(self, folder, *, argv=(sys.executable, "-m", "streamd.worker")) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self._log = (folder / "worker.log").open("w+")
        with theirs:
            self.process = subprocess.Popen(
                [*argv, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    def start(self, cameras, **options) -> None:
        self.send(start_message(cameras, **options))

    def exit_code(self, timeout_s=DEADLINE_S):
        return self.process.wait(timeout_s)

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def end(self) -> None:
        self.hang_up()
        self.process.kill()
        self.process.communicate()
        self._log.close()


@pytest.fixture(scope="module")
def new_process():
    """`new_process(folder)`: a worker process for all tests of a module."""
    running = []

    def new(folder, **options):
        running.append(WorkerProcess(folder, **options))
        return running[-1]

    yield new
    for worker in running:
        worker.end()


@pytest.fixture
def new_worker(tmp_path):
    """`new_worker()`: a worker process that waits for Start."""
    running = []

    def new(**options):
        running.append(WorkerProcess(tmp_path, **options))
        return running[-1]

    yield new
    for worker in running:
        worker.end()


async def _serve_and_close(fd) -> int:
    channels = []
    with pytest.MonkeyPatch.context() as patch:

        class Kept(main.Channel):
            def __init__(self, *args, **options):
                super().__init__(*args, **options)
                channels.append(self)

        patch.setattr(main, "Channel", Kept)
        code = await main._serve(fd)
    for channel in channels:
        await channel.close()
    return code


class Served(DaemonEnd):
    """The program of a worker on a thread of the test's process, where it starts fast; `code` is what it would exit with."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self.code = None
        self._thread = threading.Thread(target=self._run, args=(theirs.detach(),))
        self._thread.start()

    def _run(self, fd) -> None:
        self.code = asyncio.run(_serve_and_close(fd))

    def stop(self, timeout_s) -> None:
        self.send(Stop(timeout_s))
        self.rest()

    def join(self) -> None:
        self.hang_up()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def serve(monkeypatch):
    """A worker's program in this process, for the length of a `with` block; what its exit would end is ended here."""
    made = []

    class Kept(main.Worker):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    @contextlib.contextmanager
    def served(cameras, **options):
        worker = Served()
        try:
            if cameras is not None:
                worker.send(start_message(cameras, **options))
            yield worker
        finally:
            worker.join()

    monkeypatch.setattr(main, "Worker", Kept)
    yield served
    for worker in made:
        if hasattr(worker, "_engine"):
            for camera in worker._cameras.values():
                camera._stop.set()
            worker._pool.stop(timeout_s=5)
            worker._engine.stop()
