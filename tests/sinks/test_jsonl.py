"""What is particular to files and pipes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
import time

import pytest
from structlog.testing import capture_logs
from support.records import event, result, state
from support.wait import wait_until_async

from streamd.config.types import JsonlConfig
from streamd.sinks import jsonl
from streamd.sinks.jsonl import JsonlSink

LONG = ("x" * 1500,) * 2
"""Labels of a result whose line is longer than a pipe takes at once when it is nearly full, and shorter than PIPE_BUF."""


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(jsonl, "RETRY_S", 0.05)


@pytest.fixture
def make(told):
    return lambda path: JsonlSink(JsonlConfig(path=str(path)), written=told.on_written, dropped=told.on_dropped)


@pytest.fixture
def pipe(monkeypatch):
    """Read end and write end; the write end plays standard output."""
    reader, writer = os.pipe()
    monkeypatch.setattr(jsonl, "_STDOUT", writer)
    yield reader, writer
    for fd in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(fd)


async def test_each_line_begins_with_its_type(make, tmp_path):
    sink = make(tmp_path / "out.jsonl")
    await sink.start()
    for record in (result(), event(), state()):
        sink.put(record)
    await sink.close(timeout_s=5)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [next(iter(json.loads(line).items())) for line in lines] == [("type", "result"), ("type", "event"), ("type", "state")]
    assert json.loads(lines[0])["labels"][0] == {"label": "cat", "index": 0, "score": 0.75}


async def test_a_file_is_appended_to(make, tmp_path):
    for sequence in range(2):
        sink = make(tmp_path / "out.jsonl")
        await sink.start()
        sink.put(result(sequence=sequence))
        await sink.close(timeout_s=5)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [0, 1]


def test_lines_of_several_processes_do_not_mix(tmp_path):
    program = """
import asyncio, sys
from support.records import result
from streamd.config.types import JsonlConfig
from streamd.sinks.jsonl import JsonlSink

async def main():
    sink = JsonlSink(JsonlConfig(path=sys.argv[1]), written=lambda *_: None, dropped=lambda *_: None)
    await sink.start()
    for sequence in range(500):
        sink.put(result(sys.argv[2], sequence, labels=("y" * 5000,)))
        await asyncio.sleep(0)
    assert await sink.close(timeout_s=20) == 0

asyncio.run(main())
"""
    path = str(tmp_path / "out.jsonl")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [subprocess.Popen([sys.executable, "-c", program, path, name], env=env) for name in ("a", "b")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for name in ("a", "b"):
        assert [data["sequence"] for data in found if data["camera"] == name] == list(range(500))


async def test_a_reader_that_is_gone_is_said_once_and_everything_after_is_dropped(make, pipe, told):
    os.close(pipe[0])
    sink = make("-")
    with capture_logs() as logs:
        await sink.start()
        for sequence in range(5):
            sink.put(result(sequence=sequence))
        await wait_until_async(lambda: len(told.dropped) == 5, what="all are dropped")
        sink.put(result(sequence=5))
    assert told.dropped_sequences == [0, 1, 2, 3, 4, 5]
    assert [log["event"] for log in logs] == ["jsonl_reader_gone"]
    assert await sink.close(timeout_s=1) == 0


@pytest.mark.parametrize("is_blocking", [True, False], ids=["blocking", "non-blocking"])
async def test_a_slow_reader_gets_every_line_whole(make, pipe, told, is_blocking):
    reader, writer = pipe
    os.set_blocking(writer, is_blocking)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    received = bytearray()

    def read() -> None:
        while data := os.read(reader, 700):
            received.extend(data)
            time.sleep(0.0005)  # the reader's slowness is the point

    thread = threading.Thread(target=read)
    thread.start()
    sink = make("-")
    await sink.start()
    for sequence in range(30):
        sink.put(result(sequence=sequence, labels=LONG))
    assert await sink.close(timeout_s=20) == 0
    os.close(writer)
    thread.join()
    assert [json.loads(line)["sequence"] for line in received.splitlines()] == told.written_sequences == list(range(30))


async def test_a_reader_that_does_not_read_holds_up_neither_the_loop_nor_the_end(make, pipe, told):
    sink = make("-")
    began_s = time.monotonic()
    with capture_logs() as logs:
        await sink.start()
        for sequence in range(300):
            sink.put(result(sequence=sequence, labels=LONG))
        assert time.monotonic() - began_s < 1
        unwritten = await sink.close(timeout_s=0.3)
    assert time.monotonic() - began_s < 3
    assert unwritten == 300 - len(told.written)
    assert 0 < unwritten < 300
    assert [log["event"] for log in logs] == ["jsonl_away"]


async def test_a_full_disk_is_waited_for_without_tearing_a_line(make, tmp_path, told, monkeypatch):
    real, failures = os.write, [3, 0]

    def full_for_a_while(fd: int, text: bytes) -> int:
        if failures[0]:
            failures[0] -= 1
            if failures[0] == 2:
                return real(fd, text[:10])  # part of the line still fits
            raise OSError(28, "No space left on device")
        return real(fd, text)

    monkeypatch.setattr(jsonl.os, "write", full_for_a_while)
    sink = make(tmp_path / "out.jsonl")
    with capture_logs() as logs:
        await sink.start()
        sink.put(result(sequence=0))
        sink.put(result(sequence=1))
        await wait_until_async(lambda: len(told.written) == 2, what="both are written")
        await sink.close(timeout_s=1)
    assert [json.loads(line)["sequence"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [0, 1]
    assert [log["event"] for log in logs] == ["jsonl_away", "jsonl_back"]
    assert "No space left on device" in logs[0]["reason"]
