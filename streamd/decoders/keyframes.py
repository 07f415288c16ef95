"""Key frames of thousands of cameras through a few decoder sessions: each is decodable alone, so cameras whose pictures have the same
format can share one. A session of NVDEC takes 26 MB of the GPU's memory, and 60 ms to start.

What keeps the cameras apart: a session takes pictures of one format only, since one that is reconfigured from 1280x532 to 1280x530 keeps
the old edges; a key frame is one whole intra picture that empties the decoder, and brings all of its parameter sets along (standalone.py);
and only the picture with the stamp of this very packet is taken. Key frames of other kinds go through a decoder of their camera's own.

What remains: a key frame of HEVC that was cut short, and whose damage neither transport nor demuxer saw. NVDEC leaves in its hole what the
surface held before, which may be a part of another camera's picture. Over TCP packets are not cut short.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol
from weakref import WeakSet

from streamd.decoders.base import Decoder
from streamd.decoders.sps import PictureFormat
from streamd.decoders.standalone import CODECS, KeyframeStream
from streamd.errors import DecodeError
from streamd.types import Frame, Packet, StreamInfo

_SESSIONS = 32
"""Of one thread; the one that was not used for longest is closed for the next."""
_IDLE_S = 60.0
"""A session that was not used for so long is closed."""


class Session(Decoder, Protocol):
    """A decoder that takes key frames of several streams, one after the other."""

    def reassign(self, info: StreamInfo) -> None:
        """The next packets are key frames of this stream, whose pictures have the same format as those before."""
        ...

    def restart(self) -> bool:
        """After `drain`: be ready for packets again. False when that cannot be."""
        ...


Create = Callable[[StreamInfo], Session]
_Key = tuple[str, PictureFormat]
"""The kind of decoder, and what its pictures are like."""


class KeyframeDecoders:
    """The sessions of a worker. Each thread has its own, on its own CUDA stream."""

    def __init__(self) -> None:
        self._sessions: WeakSet[Session] = WeakSet()
        self._here = threading.local()

    def __len__(self) -> int:
        """Sessions of all threads."""
        return len(self._sessions)

    def decoder(self, name: str, info: StreamInfo, create: Create) -> Decoder:
        """A camera's decoder on the calling thread's sessions. `create` makes one where none fits, of the kind `name`."""
        shared = getattr(self._here, "sessions", None)
        if shared is None:
            shared = self._here.sessions = _Sessions(self._sessions)
        return KeyframeDecoder(shared, name, info, create)


class _Sessions:
    """Those of one thread."""

    def __init__(self, every: WeakSet[Session]) -> None:
        self._every = every
        self._sessions: OrderedDict[_Key, tuple[Session, float]] = OrderedDict()
        """With the time of their last use, which they are sorted by."""
        self._retired: list[Session] = []
        self._users = 0
        self._stamps = itertools.count()

    def join(self) -> None:
        """One camera more uses the sessions."""
        self._users += 1

    def leave(self) -> None:
        """One camera less; with the last one the sessions go too."""
        self._users -= 1
        if not self._users:
            while self._sessions:
                self._retire_oldest()
            self._close_retired()

    def decode(self, key: _Key, info: StreamInfo, packet: Packet, create: Create) -> Sequence[Frame]:
        """The picture of a key frame that stands alone. Valid until the next call.

        Raises DecodeError; the session is not used again.
        """
        self._close_retired()
        session, _ = self._sessions.pop(key, (None, 0.0))
        session = session or create(info)
        stamp = next(self._stamps)
        self._retire(session)  # unless all goes well
        session.reassign(info)
        frames = session.decode(replace(packet, token=stamp, pts=None))
        is_whole = bool(frames)
        if not is_whole:  # where the stream may have B-frames, decoders wait for them
            frames = session.drain()
            is_whole = session.restart()
        own = [frame for frame in frames if frame.token == stamp]
        if is_whole and len(own) == len(frames) == 1:
            self._retired.remove(session)
            self._sessions[key] = session, time.monotonic()
            self._every.add(session)
            self._retire_unused()
        return own[:1]

    def _retire_unused(self) -> None:
        """Those that are too many or idle; the newest one stays."""
        oldest_s = time.monotonic() - _IDLE_S
        while len(self._sessions) > _SESSIONS or next(iter(self._sessions.values()))[1] < oldest_s:
            self._retire_oldest()

    def _retire_oldest(self) -> None:
        _, (session, _) = self._sessions.popitem(last=False)
        self._retire(session)

    def _retire(self, session: Session) -> None:
        self._every.discard(session)
        self._retired.append(session)

    def _close_retired(self) -> None:
        """Their last frames have been read by now."""
        while self._retired:
            self._retired.pop().close()


class KeyframeDecoder:
    """A Decoder (see base.py) for the key frames of one camera. Nothing is ever held back."""

    def __init__(self, shared: _Sessions, name: str, info: StreamInfo, create: Create) -> None:
        self.name = name
        self._shared = shared
        self._info = info
        self._create = create
        self._stream = KeyframeStream(info.codec, info.extradata) if info.codec in CODECS else None
        self._own: Session | None = None
        """For key frames that cannot be shown to stand alone."""
        self._is_drained = False
        self._is_closed = False
        shared.join()

    def decode(self, packet: Packet) -> Sequence[Frame]:
        """See Decoder.decode. `packet` is a key frame.

        One that was damaged on its way is refused: what a decoder puts into the holes may be another camera's.
        """
        if packet.is_corrupt:
            raise DecodeError(f"a key frame of {self._info.codec} was damaged on its way")
        alone = None if self._stream is None else self._stream.standalone(packet.data)
        if alone is None:
            return self._decoded_apart(packet)
        self._close_own()
        info = _described(self._info, alone.format)
        frames = self._shared.decode((self.name, alone.format), info, replace(packet, data=alone.data), self._create)
        return [replace(frame, token=packet.token) for frame in frames]

    def _decoded_apart(self, packet: Packet) -> Sequence[Frame]:
        if self._is_drained:
            self._close_own()
        self._own = self._own or self._create(self._info)
        frames = self._own.decode(packet)
        if not frames:
            frames = self._own.drain()
            self._is_drained = True  # it takes no packet any more
        return frames

    def _close_own(self) -> None:
        own, self._own, self._is_drained = self._own, None, False
        if own is not None:
            own.close()

    def drain(self) -> Sequence[Frame]:
        """See Decoder.drain."""
        return []

    def close(self) -> None:
        """See Decoder.close. The sessions stay, for the other cameras."""
        self._close_own()
        if not self._is_closed:
            self._is_closed = True
            self._shared.leave()


def _described(info: StreamInfo, shape: PictureFormat) -> StreamInfo:
    """The camera's stream as its latest parameter sets say, for a session that gets these with each key frame."""
    plain = "yuv420p" if shape.luma_depth == 8 else f"yuv420p{shape.luma_depth}le"
    pixel_format = info.pixel_format if info.pixel_format == "yuvj420p" and shape.luma_depth == 8 else plain
    return replace(info, width=shape.width, height=shape.height, pixel_format=pixel_format, extradata=b"", reorder_frames=0)
