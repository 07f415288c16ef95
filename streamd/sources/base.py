"""What a source is: one connection to one video stream. It never retries; its owner decides whether there is a next one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from streamd.types import Packet, StreamInfo


class Source(Protocol):
    """Blocking; all methods are called from the one thread that owns the connection."""

    def open(self) -> StreamInfo:
        """Connect. Raises a SourceError: Unreachable, SourceTimeout, Unauthorized, NotFound, NotVideo."""
        ...

    def packets(self) -> Iterator[Packet]:
        """The packets of the video stream in decode order, until the end of a file.

        Raises SourceError when the stream breaks off; a live stream has no end, so its end is Disconnected.
        """
        ...

    def close(self) -> None:
        """Let go of the connection (RTSP: TEARDOWN). May be called in any state, any number of times."""
        ...
