"""The raw ceiling: how many frames a second the decoders give when nothing else is done. Packets come from memory, surfaces are dropped.

Several processes, started by `measure`; each runs this module as its program, and speaks JSON on its standard streams.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from streamd import decoders
from streamd.bench.usage import Usage, UsageMeter
from streamd.errors import StreamdError
from streamd.sources.file import FileSource
from streamd.types import Packet, StreamInfo

_READY_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Share:
    """What one process does."""

    clip: str
    streams: int
    threads: int
    device: str
    low_latency: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class DecodeResult:
    streams: int
    processes: int
    seconds: float
    fps: float
    cpu_ms_per_frame: float
    usage: Usage


async def measure(share: Share, *, processes: int) -> DecodeResult:
    """Run `processes` of `share` side by side. Raises StreamdError when one of them fails."""
    workers = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "streamd.bench.decode",
            json.dumps(asdict(share)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(processes)
    ]
    try:
        for worker in workers:
            await asyncio.wait_for(_line(worker), _READY_TIMEOUT_S)
        meter = UsageMeter()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(b"go\n")
        meter.start()
        results = [json.loads(await asyncio.wait_for(_line(worker), share.seconds + 60)) for worker in workers]
        usage = meter.stop()
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.kill()
            await worker.wait()
    frames = sum(result["frames"] for result in results)
    return DecodeResult(
        streams=share.streams * processes,
        processes=processes,
        seconds=share.seconds,
        fps=round(sum(result["frames"] / result["seconds"] for result in results), 1),
        cpu_ms_per_frame=round(1000 * sum(result["cpu_s"] for result in results) / max(frames, 1), 3),
        usage=usage,
    )


async def _line(worker: asyncio.subprocess.Process) -> bytes:
    assert worker.stdout is not None
    line = await worker.stdout.readline()
    if not line:
        raise StreamdError("a decoding process ended early")
    return line


class _Stream:
    """One decoder that plays the clip over and over."""

    def __init__(self, packets: list[Packet], info: StreamInfo, share: Share, device: torch.device) -> None:
        self._packets = packets
        self._token = 0
        self._decoder = decoders.create(
            decoders.choose(info, policy="auto", device=device), info, device=device, low_latency=share.low_latency
        )

    def step(self) -> int:
        """Decode one packet; returns how many frames came."""
        token, self._token = self._token, self._token + 1
        packet = replace(self._packets[token % len(self._packets)], token=token, pts=token)
        return len(self._decoder.decode(packet))

    def close(self) -> None:
        self._decoder.close()


class _Process:
    """The decode threads of this process, all on one clip."""

    def __init__(self, share: Share) -> None:
        source = FileSource(Path(share.clip), loop=False)
        self._info = source.open()
        self._packets = list(source.packets())
        source.close()
        self._share = share
        self._device = torch.device(share.device)
        self._ready = threading.Barrier(share.threads + 1)
        self._go, self._over = threading.Event(), threading.Event()
        self._counts = [0] * share.threads

    def run(self) -> None:
        """Say `ready`, wait for a line, decode for the time that was asked for, say what was done."""
        threads = [threading.Thread(target=self._decode, args=(number,)) for number in range(self._share.threads)]
        for thread in threads:
            thread.start()
        self._ready.wait()
        print("ready", flush=True)  # noqa: T201 - the protocol
        sys.stdin.readline()
        began_s, cpu_s = time.monotonic(), time.process_time()
        self._go.set()
        time.sleep(self._share.seconds)
        done = {"frames": sum(self._counts), "seconds": time.monotonic() - began_s, "cpu_s": time.process_time() - cpu_s}
        self._over.set()
        for thread in threads:
            thread.join()
        print(json.dumps(done), flush=True)  # noqa: T201

    def _decode(self, number: int) -> None:
        try:
            streams = self._streams(number)
        except BaseException:
            self._ready.abort()
            raise
        self._ready.wait()
        self._go.wait()
        while not self._over.is_set():
            for stream in streams:
                self._counts[number] += stream.step()
        for stream in streams:
            stream.close()

    def _streams(self, number: int) -> list[_Stream]:
        """Those of one thread; each has decoded a few frames, as the first decode of a session sets it up."""
        torch.set_num_threads(1)
        share = self._share
        if self._device.type == "cuda":
            torch.cuda.set_stream(torch.cuda.Stream(self._device))
        streams = [_Stream(self._packets, self._info, share, self._device) for _ in range(number, share.streams, share.threads)]
        for stream in streams:
            for _ in range(8):
                stream.step()
        return streams


if __name__ == "__main__":
    _Process(Share(**json.loads(sys.argv[1]))).run()
