"""The thread of one connection: it opens the source and reads packets, so that only this thread waits for the network.

A native call that does not return cannot be broken off. Then the owner turns away: it ignores whatever the thread still does, and the
thread ends by itself when the call returns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import structlog

from streamd.camera.pacing import Pacer
from streamd.errors import SourceError, StreamdError
from streamd.types import Packet, StreamInfo

log = structlog.get_logger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Readable(Protocol[T_co]):
    """A Source (see sources/base.py) of packets, or of something else."""

    def open(self) -> StreamInfo: ...

    def packets(self) -> Iterator[T_co]: ...

    def close(self) -> None: ...


class Reader(Generic[T]):
    """Callbacks come from its thread: `on_open` with the stream, `on_packet` with each packet, `on_end` last, with the error or None."""

    def __init__(
        self,
        source: Readable[T],
        *,
        name: str,
        realtime: bool,
        on_open: Callable[[StreamInfo], None],
        on_packet: Callable[[T], None],
        on_end: Callable[[StreamdError | None], None],
    ) -> None:
        self._source = source
        self._realtime = realtime
        self._on_open = on_open
        self._on_packet = on_packet
        self._on_end = on_end
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"read-{name}", daemon=True)
        self.last_packet_ns: int | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after the packet that it waits for."""
        self._stop.set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        error: StreamdError | None = None
        try:
            info = self._source.open()
            if not self._stop.is_set():
                self._on_open(info)
                self._read(info)
        except StreamdError as fault:
            error = fault
        except Exception as fault:  # whatever went wrong, the owner must hear of the end
            log.exception("reader_crashed", thread=self._thread.name)
            error = SourceError(f"reading failed: {type(fault).__name__}")
        finally:
            self._close()
            self._on_end(error)

    def _close(self) -> None:
        try:
            self._source.close()
        except Exception:  # the connection is over either way, and the owner must hear of it
            log.exception("close_failed", thread=self._thread.name)

    def _read(self, info: StreamInfo) -> None:
        pacer = Pacer(info) if self._realtime else None
        for packet in self._source.packets():
            self.last_packet_ns = time.monotonic_ns()
            if self._stop.is_set():
                return
            if pacer is None or not isinstance(packet, Packet):
                self._on_packet(packet)
                continue
            wait_s = pacer.due_s(packet, now_s=time.monotonic()) - time.monotonic()
            if wait_s > 0 and self._stop.wait(wait_s):
                return
            self._on_packet(replace(packet, received_ns=time.monotonic_ns(), captured_ns=time.time_ns()))
