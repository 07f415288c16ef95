"""Reads packets from a source in a thread of its own, so that a native call that never returns costs a deadline and not the command."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field

from streamd.errors import Disconnected, NoFrames, NotVideo, SourceError, SourceTimeout
from streamd.sources.base import Source
from streamd.types import Packet, StreamInfo

READER = "streamd-probe-reader"
"""The thread's name. While it lives, the interpreter may not be able to leave by itself."""

_GRACE_S = 1.0
"""Beyond a deadline that FFmpeg was given too: it should come first, since it knows more."""
_HEAD_PACKETS = 120
_HEAD_BYTES = 64 * 1024 * 1024
_FILE_PACKETS = range(100, 3000)
"""A file is read up to its second key frame, but not less and not more than this."""
_LIVE_S = 2.0
"""A live stream is watched for at least so long: its first packets come in a burst, and say little of its rate."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient a probe is, in seconds."""

    answer_s: float = 10.0
    """For the connection, and again for the first packet."""
    watch_s: float = 5.0
    """For reading packets at most."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A packet, without its data."""

    size_bytes: int
    pts: int | None
    is_keyframe: bool
    is_corrupt: bool
    received_ns: int


@dataclass(slots=True)
class Watched:
    """What came. Times are `time.monotonic_ns()`."""

    info: StreamInfo
    started_ns: int
    opened_ns: int
    seen: list[Seen] = field(default_factory=list)
    head: list[Packet] = field(default_factory=list)
    """The first packets from the first key frame on."""
    complete: bool = False
    """The file was read to its end."""
    broke_off: SourceError | None = None
    """The stream ended before enough was seen."""

    @property
    def keyframes(self) -> int:
        return sum(packet.is_keyframe for packet in self.seen)


def watch(source: Source, limits: Limits, *, shown: str, live: bool) -> Watched:
    """Open `source`, read until enough is known, and close it. `shown` is its address without credentials, for messages.

    Raises:
        SourceError: it cannot be opened, or no packet came.
    """
    reader = _Reader(source)
    try:
        watched = _open(reader, limits, shown=shown)
        _read(reader, watched, limits, shown=shown, live=live)
    finally:
        reader.stop()
    if not watched.seen:
        raise NotVideo(f"{shown} holds a video stream without a single frame")
    return watched


def _open(reader: _Reader, limits: Limits, *, shown: str) -> Watched:
    info = reader.next(limits.answer_s + _GRACE_S)
    if info is None:
        raise SourceTimeout(f"{shown} does not answer within {limits.answer_s:g} s")
    assert isinstance(info, StreamInfo)
    return Watched(info=info, started_ns=reader.started_ns, opened_ns=time.monotonic_ns())


def _read(reader: _Reader, watched: Watched, limits: Limits, *, shown: str, live: bool) -> None:
    deadline_s = time.monotonic() + limits.answer_s + _GRACE_S
    head_bytes = 0
    while not _enough(watched, live=live):
        try:
            packet = reader.next(deadline_s - time.monotonic())
        except Disconnected as error:
            if not watched.seen:
                raise
            watched.broke_off = error
            return
        except SourceTimeout:
            packet = None
        if packet is None:
            if not watched.seen:
                raise SourceTimeout(f"{shown} is connected, but sends no video: nothing came for {limits.answer_s:g} s")
            return
        if not isinstance(packet, Packet):
            watched.complete = True
            return
        if not watched.seen:
            deadline_s = time.monotonic() + limits.watch_s
        watched.seen.append(Seen(len(packet.data), packet.pts, packet.is_keyframe, packet.is_corrupt, packet.received_ns))
        if (watched.head or packet.is_keyframe) and len(watched.head) < _HEAD_PACKETS and head_bytes < _HEAD_BYTES:
            watched.head.append(packet)
            head_bytes += len(packet.data)


def _enough(watched: Watched, *, live: bool) -> bool:
    if not watched.seen:
        return False
    if live:
        return watched.keyframes >= 2 and watched.seen[-1].received_ns - watched.seen[0].received_ns >= _LIVE_S * 1e9
    count = len(watched.seen)
    return count >= _FILE_PACKETS.stop or (count >= _FILE_PACKETS.start and watched.keyframes >= 2)


class _End:
    """The source has no more packets."""


class _Reader:
    """The thread that owns the source, and the queue between it and us."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._queue: queue.SimpleQueue[StreamInfo | Packet | _End | Exception] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=READER, daemon=True)
        self.started_ns = time.monotonic_ns()
        self._thread.start()

    def _run(self) -> None:
        try:
            self._queue.put(self._source.open())
            for packet in self._source.packets():
                self._queue.put(packet)
                if self._stop.is_set():
                    break
            self._queue.put(_End())
        except Exception as error:  # noqa: BLE001 - raised again by `next`, in the caller's thread
            self._queue.put(error)
        finally:
            self._source.close()

    def next(self, timeout_s: float) -> StreamInfo | Packet | _End | None:
        """What came next; None when nothing came in time. Raises what the source raised."""
        try:
            item = self._queue.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            raise item
        return item

    def stop(self) -> None:
        """Let the source say goodbye (RTSP: TEARDOWN), if it can within a second."""
        self._stop.set()
        self._thread.join(_GRACE_S)


def no_picture(watched: Watched, *, shown: str) -> NoFrames:
    """The error for packets of which none became a picture."""
    count = len(watched.seen)
    if not watched.keyframes:
        return NoFrames(f"{shown} sent {count} packets, but no key frame, without which nothing can be decoded: try a longer --seconds")
    return NoFrames(f"{shown} sent {count} packets, but none of them could be decoded to a picture")
