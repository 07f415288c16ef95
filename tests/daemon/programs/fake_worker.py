"""A worker that speaks the protocol and touches no video. Its cameras' names say how it behaves: `ends-1` ends, `deaf-1` ignores Stop, …

What it was told goes to files in the folder that is its first argument; the channel's file descriptor is the last one.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from streamd.records import CameraState, Event, EventKind, Phase
from streamd.types import Ledger
from streamd.worker.protocol import Changed, Channel, Counts, Failed, Ready, Released, Start, Stop, ToWorker, Update

folder = Path(sys.argv[1])


def note(name, **facts):
    with (folder / name).open("a") as file:
        file.write(json.dumps(facts) + "\n")


def changed(camera, phase, kind, **fields):
    now = time.time_ns() // 1_000_000
    state = CameraState(camera=camera, phase=phase, since_ms=now, session="s", **fields)
    return Changed(state, Event(kind=kind, camera=camera, session="s", at_ms=now, detail=fields.get("detail")))


async def live(channel, start):
    kinds = {camera: camera.partition("-")[0] for camera in start.cameras}
    while "slow" in kinds.values() and not (folder / "go").exists():  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.01)
    if "refuses" in kinds.values():
        channel.send(Failed("model resnet51 does not exist", retry=False))
        await asyncio.sleep(60)
    if "complains" in kinds.values():
        channel.send(Failed("the GPU fell off the bus", retry=True))
        return
    channel.send(Ready("cpu"))
    if "silent" in kinds.values():
        await asyncio.sleep(60)
    if "crashes" in kinds.values():
        os.kill(os.getpid(), signal.SIGSEGV)
    if "garbage" in kinds.values():
        channel._writer.write(b"\0\0\0\1\xc1")
    for camera, kind in kinds.items():
        for message in said_of(camera, kind):
            channel.send(message)
    received = 0
    while True:
        received += 100
        ledgers = {camera: Ledger(received=received if kind == "stuck" else 0) for camera, kind in kinds.items()}
        channel.send(Counts(ledgers, sink_queue=0, batches=0, latency=[], cpu_s=0.0, at_ns=0))
        await asyncio.sleep(0.02)


def said_of(camera, kind):
    if kind == "fails":
        return [changed(camera, Phase.FAILED, EventKind.FAILED, reason="not_video")]
    if kind == "leaks":
        return [changed(camera, Phase.DOWN, EventKind.DOWN, detail="rtsp://cam:S3cr%40t@door/1 refused, S3cr@t")]
    up = changed(camera, Phase.UP, EventKind.UP)
    return [up, changed(camera, Phase.ENDED, EventKind.ENDED)] if kind == "ends" else [up]


async def main():
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=int(sys.argv[-1])))
    channel = Channel(reader, writer, receives=ToWorker)
    start = await channel.receive()
    assert isinstance(start, Start)
    note(
        "lives",
        worker=start.worker,
        pid=os.getpid(),
        cameras=start.cameras,
        config=start.config,
        gpu=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )
    life = asyncio.ensure_future(live(channel, start))
    listening = asyncio.ensure_future(channel.receive())
    cameras = start.cameras
    while True:
        await asyncio.wait({life, listening}, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            break
        message = listening.result()
        if isinstance(message, Update):
            note("updates", worker=start.worker, cameras=message.cameras, config=message.config)
            gone, new = set(cameras) - set(message.cameras), [camera for camera in message.cameras if camera not in cameras]
            cameras = message.cameras
            for camera in gone:
                channel.send(changed(camera, Phase.STOPPED, EventKind.STOPPED))
                channel.send(Released(camera))
            for camera in new:
                channel.send(changed(camera, Phase.UP, EventKind.UP))
            listening = asyncio.ensure_future(channel.receive())
            continue
        if isinstance(message, Stop):
            note("stops", worker=start.worker, timeout_s=message.timeout_s)
        elif message is None:
            note("orphans", worker=start.worker)
        if message is None or not any(camera.startswith("deaf") for camera in start.cameras):
            break
        listening = asyncio.ensure_future(channel.receive())
    life.cancel()
    await channel.close()


asyncio.run(main())
