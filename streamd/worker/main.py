"""The process of a worker: receives its configuration, loads the models, runs its cameras until told to stop.

Life cycle (if the code differs, that is a bug):
1. The first message is Start. Models are loaded and warmed up; then Ready is sent, and cameras start, a little apart.
2. Counts is sent each second from then on.
3. Stop: sources end, what was received goes through, sinks are flushed, all within the given time; exit code 0.
4. The daemon is gone (end of the channel, or its process died): exit at once.
5. The engine fails (a CUDA fault, say): nothing is published any more; Failed with `retry` is sent; exit code 70.
6. A model or the device is not to be had: Failed without `retry` is sent; exit code 69.
7. SIGTERM and SIGINT are ignored: they reach the whole process group, and the daemon says what they mean.
8. Update: cameras that are new start, changed ones stop and start again once what they received is through, those left out stop, and
   Released is sent of each. The others do not notice. While models load the latest Update waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from typing import NoReturn

import structlog

from streamd import eventloop, redact
from streamd import log as logging
from streamd.config import secrets
from streamd.config.types import Config
from streamd.errors import DeviceError, ModelError
from streamd.worker.protocol import Channel, Failed, Ready, Start, Stop, ToWorker, Update
from streamd.worker.worker import Worker

log = structlog.get_logger(__name__)

EX_UNAVAILABLE, EX_SOFTWARE = 69, 70
_PR_SET_PDEATHSIG = 1
_HEARTBEAT_S = 1.0


def main(fd: int) -> NoReturn:
    """Run on the socket `fd`; does not return."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    eventloop.run(_serve_and_leave(fd))


async def _serve_and_leave(fd: int) -> NoReturn:
    """Not by returning: a reader may sit in a native call that does not return, and the loop's end would wait for models that load."""
    try:
        code = await _serve(fd)
    except Exception:
        log.exception("worker_crashed")
        code = EX_SOFTWARE
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _serve(fd: int) -> int:
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=fd))
    channel = Channel(reader, writer, receives=ToWorker)
    start = await channel.receive()
    if not isinstance(start, Start):
        return EX_SOFTWARE
    config = Config.model_validate(start.config)
    logging.configure(level=start.log_level, json=start.log_json, worker=start.worker)
    redact.add_secrets(secrets(config))
    failure = asyncio.Event()
    worker = Worker(config, start.cameras, workers=start.workers, on_change=channel.send, on_failure=failure.set)
    following = asyncio.create_task(_next_stop(channel, worker))
    loading = asyncio.create_task(worker.load())
    await asyncio.wait({following, loading}, return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        return 0 if following.result() else EX_SOFTWARE  # told to stop, or alone, before there was anything to finish
    try:
        loading.result()
    except (ModelError, DeviceError) as error:
        channel.send(Failed(message=str(error), retry=False))
        await channel.close()
        return EX_UNAVAILABLE
    channel.send(Ready(device=worker.device_name))
    worker.start()
    return await _run(worker, channel, following, failure)


async def _next_stop(channel: Channel, worker: Worker) -> Stop | None:
    """The daemon's Stop; None when it is gone. Updates on the way are passed on."""
    while isinstance(message := await channel.receive(), Update):
        config = Config.model_validate(message.config)
        redact.add_secrets(secrets(config))
        worker.update(config, message.cameras)
    return message if isinstance(message, Stop) else None


async def _run(worker: Worker, channel: Channel, following: asyncio.Task[Stop | None], failure: asyncio.Event) -> int:
    failing = asyncio.create_task(failure.wait())
    beating = asyncio.create_task(_beat(worker, channel))
    await asyncio.wait({following, failing}, return_when=asyncio.FIRST_COMPLETED)
    if failing.done():
        message = f"the engine failed: {worker.failure}"
        log.error("engine_failed", exc_info=worker.failure)
        channel.send(Failed(message=message, retry=True))
        await channel.close()
        return EX_SOFTWARE
    stop = following.result()
    if stop is None:
        return EX_SOFTWARE
    deadline_s = time.monotonic() + stop.timeout_s
    await worker.stop(deadline_s=deadline_s)
    beating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beating
    channel.send(worker.counts())
    await channel.close()
    return 0


async def _beat(worker: Worker, channel: Channel) -> None:
    while True:
        channel.send(worker.counts())
        await asyncio.sleep(_HEARTBEAT_S)
