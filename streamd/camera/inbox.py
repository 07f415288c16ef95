"""Packets between a camera's reading thread and its decoding: bounded, and never emptied of arbitrary packets."""

from __future__ import annotations

import threading
from collections import deque

from streamd.types import Packet

MAX_PACKETS = 128
MAX_BYTES = 16 * 1024 * 1024


class Inbox:
    """One thread puts, one takes. When a live camera's inbox is full, everything up to the next key frame is given up: a decoder could do
    nothing with the rest. A file's reader waits instead, until half of it is taken, so that the threads change turns seldom.
    """

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._ready = threading.Condition()
        self._packets: deque[Packet] = deque()
        self._bytes = 0
        self._skipping = False
        self._closed = False

    def put(self, packet: Packet) -> int:
        """Queue a packet; returns how many packets were given up for it, itself included."""
        with self._ready:
            lost = 0
            if not self._live and self._full():
                self._ready.wait_for(lambda: self._closed or self._half_empty())
            if self._closed:
                return 1
            if self._live:
                if self._full():
                    lost = self._clear()
                    self._skipping = True
                if self._skipping and not packet.is_keyframe:
                    return lost + 1
                self._skipping = False
            self._packets.append(packet)
            self._bytes += len(packet.data)
            return lost

    def take(self) -> Packet | None:
        """The next packet; None when there is none now."""
        with self._ready:
            if not self._packets:
                return None
            packet = self._packets.popleft()
            self._bytes -= len(packet.data)
            if not self._live and self._half_empty():
                self._ready.notify_all()
            return packet

    def close(self) -> None:
        """No packet follows; what is queued can still be taken."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def clear(self) -> int:
        """Give up what is queued, and close; returns how many packets that were."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
            return self._clear()

    @property
    def is_exhausted(self) -> bool:
        """Closed and empty."""
        with self._ready:
            return self._closed and not self._packets

    def _full(self) -> bool:
        return len(self._packets) >= MAX_PACKETS or self._bytes >= MAX_BYTES

    def _half_empty(self) -> bool:
        return len(self._packets) <= MAX_PACKETS // 2 and self._bytes <= MAX_BYTES // 2

    def _clear(self) -> int:
        count = len(self._packets)
        self._packets.clear()
        self._bytes = 0
        return count
