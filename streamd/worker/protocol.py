"""The messages between the daemon and its workers: msgpack over a socket pair, each with its length in front (4 bytes, big endian).

The daemon speaks first with Start; an end of file on either side means that the other one is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from msgspec import Struct

from streamd.records import CameraState, Event
from streamd.types import Ledger

MAX_MESSAGE_BYTES = 64 * 1024 * 1024


class Start(Struct, tag=True, frozen=True):
    """To a worker, once: the whole configuration (secrets in clear), and which of its cameras are this worker's."""

    worker: str
    config: dict[str, Any]
    cameras: list[str]
    workers: int = 1
    """How many workers there are: cameras start further apart when others start theirs too."""
    log_level: str = "info"
    log_json: bool = True


class Update(Struct, tag=True, frozen=True):
    """To a worker, any time after Start: the whole new configuration, and which of its cameras are this worker's now.

    Its models are those of Start, so no camera here has another one.
    """

    config: dict[str, Any]
    cameras: list[str]


class Stop(Struct, tag=True, frozen=True):
    """To a worker: stop the sources, finish what is in flight within `timeout_s`, and exit."""

    timeout_s: float


class Ready(Struct, tag=True, frozen=True):
    """From a worker: models are loaded and warm, cameras are starting."""

    device: str


class Failed(Struct, tag=True, frozen=True):
    """From a worker that exits by its own decision: a sentence, and whether a restart could help."""

    message: str
    retry: bool


class Changed(Struct, tag=True, frozen=True):
    """From a worker: a camera's new state, and the event that says so."""

    state: CameraState
    event: Event | None = None


class Released(Struct, tag=True, frozen=True):
    """From a worker: a camera that an Update left out is gone from here, and its results are written."""

    camera: str


class Counts(Struct, tag=True, frozen=True):
    """From a worker, each second: the ledgers of its cameras. It is the heartbeat too."""

    ledgers: dict[str, Ledger]
    sink_queue: int
    batches: int
    """Batches inferred since the worker began."""
    latency: list[int]
    """DurationHistogram: from the arrival of a frame's own packet to the acknowledgement of its result by the sink."""
    cpu_s: float
    """Processor time of the worker, user and system, all threads."""
    at_ns: int
    """When this was counted; `time.monotonic_ns()`, which all processes of a machine share."""
    shared_decoders: int = 0
    """Decoder sessions that cameras in key-frame mode share."""


ToWorker = Start | Update | Stop
FromWorker = Ready | Failed | Changed | Released | Counts

_encode = msgspec.msgpack.Encoder().encode


class Channel:
    """One end of the socket pair. `T` messages arrive, any message can be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, receives: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decode = msgspec.msgpack.Decoder(receives).decode

    def send(self, message: ToWorker | FromWorker) -> None:
        """Queue a message; messages to an end that is gone are dropped, the reader notices."""
        data = _encode(message)
        if not self._writer.is_closing():
            self._writer.write(len(data).to_bytes(4, "big") + data)

    async def receive(self) -> Any:
        """The next message; None when the other end is gone."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            if size > MAX_MESSAGE_BYTES:
                raise ValueError(f"message of {size} bytes")
            return self._decode(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
