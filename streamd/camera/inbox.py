"""Packets between a camera's reading thread and its decoding: bounded, and never emptied of arbitrary packets.

Time is an argument: a packet's arrival tells `put` what time it is.
"""

from __future__ import annotations

import math
import threading
from collections import deque

from streamd.types import Packet

MAX_PACKETS = 128
MAX_BYTES = 16 * 1024 * 1024
_LATE_SHARE = 1 / 2
"""A packet that has waited for this share of `max_age` is late: what follows, from decoding to Redis, needs the rest."""
_PATIENCE_SHARE = 1 / 8
"""How long, as a share of `max_age`, packets may stay late before it is asked whether their decoding catches up."""
_CATCHES_UP = 1 / 4
"""It does when the lag shrinks by that many seconds each second."""
_STARVED_SHARE = 0.95
_MEMORY_NS = 10e9
"""How far back `lost_share` looks: longer than most key frame intervals."""


class Inbox:
    """One thread puts, one takes. A file's reader waits when it is full, until half is taken, so that the threads change turns seldom.

    A live camera's packets age instead. When they stay late and decoding does not catch up, everything before the newest key frame that
    waits is given up, and where none waits, everything up to the next: a decoder could do nothing with the rest. So after a short stall
    all is decoded, and under a lasting overload no time goes into frames that would come out too old.
    """

    def __init__(self, *, max_age_s: float | None) -> None:
        """`max_age_s` is None for a file."""
        self._max_age_ns = None if max_age_s is None else int(max_age_s * 1e9)
        self._ready = threading.Condition()
        self._packets: deque[Packet] = deque()
        self._bytes = 0
        self._late: tuple[int, float] | None = None
        """Since when the oldest packet is late, or was found to catch up, and how old it was then, as a share of `max_age`."""
        self._closed = False
        self.is_skipping = False
        """What comes before the next key frame is given up on arrival."""
        self._now_ns = self._booked_ns = 0
        self._recent = self._recent_lost = 0.0

    def put(self, packet: Packet) -> int:
        """Queue a packet; returns how many packets were given up for it, itself included."""
        with self._ready:
            if self._max_age_ns is None and self._full():
                self._ready.wait_for(lambda: self._closed or self._half_empty())
            if self._closed:
                return 1
            self._now_ns = packet.received_ns
            # Within the patience only `give_up` can tell: while all decoding stands still, nothing catches up.
            lost = self._give_up() if self._oldest_age() > _LATE_SHARE + _PATIENCE_SHARE else 0
            if self._full():
                lost += self._skip()
            if self.is_skipping and not packet.is_keyframe:
                self._book(1, lost=1)
                return lost + 1
            self.is_skipping = False
            self._packets.append(packet)
            self._bytes += len(packet.data)
            return lost

    def give_up(self, now_ns: int) -> int:
        """Before `take`: give up what is not worth decoding at `now_ns`; returns how many packets that were."""
        if self._max_age_ns is None:
            return 0
        with self._ready:
            self._now_ns = now_ns
            return 0 if self._closed else self._give_up()

    def take(self) -> Packet | None:
        """The next packet; None when there is none now."""
        with self._ready:
            if not self._packets:
                return None
            packet = self._packets.popleft()
            self._bytes -= len(packet.data)
            self._book(1, lost=0)
            if self._max_age_ns is None and self._half_empty():
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
            return self._drop(len(self._packets))

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_starved(self) -> bool:
        """Whether hardly a packet is taken any more, because cameras of higher priority need the decoder."""
        return self.lost_share > _STARVED_SHARE

    @property
    def lost_share(self) -> float:
        """Which share of the packets of the last 10 s or so was given up, from 0 to 1: who goes first where cameras share a decoder."""
        return self._recent_lost / self._recent if self._recent else 0.0

    @property
    def is_exhausted(self) -> bool:
        """Closed and empty."""
        with self._ready:
            return self._closed and not self._packets

    def _full(self) -> bool:
        return len(self._packets) >= MAX_PACKETS or self._bytes >= MAX_BYTES

    def _half_empty(self) -> bool:
        return len(self._packets) <= MAX_PACKETS // 2 and self._bytes <= MAX_BYTES // 2

    def _give_up(self) -> int:
        if not self._is_hopeless():
            return 0
        self._late = None
        newest_key = next((n for n in reversed(range(len(self._packets))) if self._packets[n].is_keyframe), 0)
        return self._drop(newest_key) if newest_key else self._skip()

    def _oldest_age(self) -> float:
        """Of what waits, as a share of `max_age`; 0 when nothing waits, or it may wait for ever."""
        if not self._packets or self._max_age_ns is None:
            return 0.0
        return (self._now_ns - self._packets[0].received_ns) / self._max_age_ns

    def _is_hopeless(self) -> bool:
        """Whether the oldest packet has been late for a while, and decoding does not catch up."""
        age = self._oldest_age()
        if self._max_age_ns is None or age <= _LATE_SHARE:
            self._late = None
            return False
        since_ns, age_then = self._late = self._late or (self._now_ns, age)
        waited = (self._now_ns - since_ns) / self._max_age_ns
        if waited < _PATIENCE_SHARE:
            return False
        self._late = (self._now_ns, age)
        return age_then - age < waited * _CATCHES_UP

    def _skip(self) -> int:
        self.is_skipping = True
        return self._drop(len(self._packets))

    def _drop(self, count: int) -> int:
        """Give up the oldest `count` packets."""
        for _ in range(count):
            self._bytes -= len(self._packets.popleft().data)
        self._book(count, lost=count)
        return count

    def _book(self, count: int, *, lost: int) -> None:
        if self._max_age_ns is None:
            return
        kept = math.exp((self._booked_ns - self._now_ns) / _MEMORY_NS)
        self._booked_ns = self._now_ns
        self._recent = self._recent * kept + count
        self._recent_lost = self._recent_lost * kept + lost
