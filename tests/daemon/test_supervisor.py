"""One worker's life, on asyncio's own loop; what the daemon makes of it is in test_daemon.py."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from streamd.daemon.placement import Placement
from streamd.daemon.supervisor import Supervisor, Timing, WorkerRefused
from streamd.worker.protocol import Start

FAKE_WORKER = Path(__file__).parent / "programs" / "fake_worker.py"


class Listener:
    """Notes what it hears, and lets a worker have so many processes."""

    def __init__(self, processes=1):
        self.left = processes
        self.heard = []
        self.changed = asyncio.Event()

    def start_message(self, placement):
        self.left -= 1
        return Start(placement.worker, {}, list(placement.cameras)) if self.left >= 0 else None

    def worker_ready(self, placement):
        self.heard.append("ready")

    def worker_changed(self, message):
        self.heard.append(message.state.phase)
        self.changed.set()

    def worker_counted(self, placement, message):
        pass

    def worker_died(self, placement, *, detail, retry_in_s):
        self.heard.append(detail)


@pytest.fixture
def supervise(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))

    def make(camera, listener, *, gpu=None, argv=(sys.executable, str(FAKE_WORKER), str(tmp_path))):
        timing = Timing(first_wait=0.01, silence=5.0)
        return Supervisor(Placement("w0", (camera,), gpu), listener=listener, argv=argv, timing=timing)

    return make


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


async def stopped_when_up(supervisor, listener):
    life = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(10):
        await listener.changed.wait()
        supervisor.stop(timeout_s=1.0)
        await life


async def test_a_worker_is_started_listened_to_and_stopped(supervise):
    listener = Listener()
    await stopped_when_up(supervise("steady-1", listener), listener)
    assert listener.heard == ["ready", "up"]


async def test_nothing_stays_open_after_many_processes(supervise):
    before = open_files()
    listener = Listener(processes=5)
    async with asyncio.timeout(20):
        await supervise("crashes-1", listener).run()
    assert listener.heard.count("killed by SIGSEGV") == 5
    assert open_files() == before


async def test_a_worker_sees_its_own_gpu(supervise, tmp_path):
    listener = Listener()
    await stopped_when_up(supervise("steady-1", listener, gpu="GPU-b"), listener)
    assert '"gpu": "GPU-b"' in (tmp_path / "lives").read_text()


async def test_a_program_that_cannot_be_started_is_tried_again(supervise, tmp_path):
    before = open_files()
    listener = Listener(processes=2)
    async with asyncio.timeout(10):
        await supervise("steady-1", listener, argv=(str(tmp_path / "absent"),)).run()
    assert len(listener.heard) == 2
    assert "cannot be started" in listener.heard[0]
    assert open_files() == before


async def test_a_program_that_knows_nothing_of_the_protocol_is_a_dead_worker(supervise):
    listener = Listener()
    async with asyncio.timeout(10):
        await supervise("steady-1", listener, argv=("/bin/sh", "-c", "exit 3")).run()
    assert listener.heard == ["exited with code 3"]


async def test_a_refusal_is_raised_with_the_workers_sentence(supervise):
    with pytest.raises(WorkerRefused, match="model resnet51 does not exist"):
        async with asyncio.timeout(10):
            await supervise("refuses-1", Listener()).run()


async def test_a_life_that_is_cancelled_leaves_no_process(supervise):
    listener, before = Listener(), children()
    life = asyncio.create_task(supervise("deaf-1", listener).run())
    async with asyncio.timeout(10):
        await listener.changed.wait()
    assert len(children()) == len(before) + 1
    life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await life
    assert children() == before
