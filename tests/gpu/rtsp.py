"""Cameras over real RTSP sockets on one GPU: is a frame lost on the way in, and what does the way in cost?

    python tests/gpu/rtsp.py [--cameras 64] [--seconds 6] [--device cuda]

Servers in processes of their own (tests/support/rtsp, interleaved TCP) send one clip to every camera at its own pace. The same cameras then
play the clip from memory: the difference is the ingest. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.rtsp import RtspServer

from streamd import log
from streamd.bench import models, pipeline
from streamd.bench.clips import ClipSpec, make
from streamd.bench.load import Load
from streamd.bench.pipeline import Setup
from streamd.config.types import Config

SERVERS = 4
SETTLE_S = 2.0


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cameras", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--serve", nargs=2, metavar=("CLIP", "PATHS"))
    asked = parser.parse_args()
    log.configure(level="error", json=False)
    if asked.serve:
        serve(Path(asked.serve[0]), int(asked.serve[1]))
    else:
        print(json.dumps(asyncio.run(measure(asked))))


def serve(clip: Path, paths: int) -> None:
    """Serve; after a line on standard input send each clip to its end, say goodbye, and print how many frames and packets there were."""
    with RtspServer() as server:
        served = [server.add(f"/{number}", clip) for number in range(paths)]
        print(server.port, flush=True)
        sys.stdin.readline()
        for number in range(paths):
            server.change(f"/{number}", loop=False)
        while any(path.sessions for path in served):
            time.sleep(0.05)
        print(json.dumps({"frames": sum(path.frames_sent for path in served), "packets": sum(path.packets_sent for path in served)}))
        sys.stdout.flush()
        sys.stdin.readline()


async def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Both loads, and what became of each frame of the first."""
    width, height = map(int, asked.size.split("x"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip = make(ClipSpec(width=width, height=height), folder)
        async with pipeline.private_redis(folder) as url:
            setup = Setup(clip, models.of_name(asked.model, folder), asked.device, None, url, {})
            over_rtsp = await over_sockets(setup, asked)
            memory = await pipeline.run(setup, asked.cameras, paced=True, seconds=asked.seconds)
    ingest_ms = over_rtsp["cpu_ms_per_frame"] - memory.cpu_ms_per_frame
    return {
        **over_rtsp,
        "ingest_cpu_ms_per_frame": round(ingest_ms, 3),
        "ingest_cores_per_camera": round(ingest_ms * 30 / 1000, 4),
        "from_memory": asdict(memory),
    }


async def over_sockets(setup: Setup, asked: argparse.Namespace) -> dict[str, Any]:
    """The cameras over RTSP."""
    servers = min(SERVERS, asked.cameras)
    shares = [len(range(number, asked.cameras, servers)) for number in range(servers)]
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            "--serve",
            str(setup.clip),
            str(share),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for share in shares
    ]
    try:
        ports = [int(await line(child)) for child in children]
        urls = [f"rtsp://127.0.0.1:{port}/{number}" for port, share in zip(ports, shares, strict=True) for number in range(share)]
        load = Load(configured(setup, urls))
        try:
            await load.start()
            await asyncio.sleep(SETTLE_S)
            measured = await load.measure(asked.seconds)
            sent = await goodbye(children)
            received = await settled(load)
        finally:
            await load.stop()
    finally:
        for child in children:
            child.kill()
            await child.wait()
    return {
        **asdict(measured),
        "rtsp_cameras": asked.cameras,
        "rtsp_frames_sent": sent["frames"],
        "rtsp_packets_sent": sent["packets"],
        "rtsp_frames_received": received,
        "rtsp_lost_packets": sent["frames"] - received,
        "note": "lost packets: encoded frames that were sent and not received, from the first to the last of each camera's session",
    }


def configured(setup: Setup, urls: list[str]) -> Config:
    """As `Setup.config`, but over RTSP, and without a second connection after the first."""
    config = setup.config(len(urls), paced=True)
    cameras = {name: {"url": url, "reconnect": {"initial": 600, "max": 600}} for name, url in zip(config.cameras, urls, strict=True)}
    return Config.model_validate(config.model_dump() | {"cameras": cameras})


async def line(child: asyncio.subprocess.Process) -> str:
    """The next line of a server."""
    assert child.stdout is not None
    return (await asyncio.wait_for(child.stdout.readline(), 60)).decode()


async def goodbye(children: list[asyncio.subprocess.Process]) -> dict[str, int]:
    """Have the servers finish their clips; what they sent in all."""
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"end\n")
    counts = [json.loads(await line(child)) for child in children]
    return {key: sum(count[key] for count in counts) for key in ("frames", "packets")}


async def settled(load: Load) -> int:
    """How many frames were received in all, once the number stands still."""
    before = -math.inf
    while load.received > before:
        before = load.received
        await asyncio.sleep(2.5)  # workers count each second
    return load.received


if __name__ == "__main__":
    main()
