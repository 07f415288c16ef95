"""A video file: the formats of a camera or a recorder, by what they are and not by their name; pictures and playlists are refused."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from streamd.errors import NotFound, NotVideo
from streamd.sources.demux import Address, Demuxer
from streamd.types import Packet, StreamInfo

FORMATS = "mov,matroska,webm,mpegts,avi,flv,mpeg,h264,hevc,ivf,obu,asf,mpegvideo,m4v,vc1"
"""FFmpeg's demuxers for video files. Not in it: pictures, subtitles, and playlists, which can name other files and hosts."""

_UNLIMITED_S = 1e9
_KEEP_BYTES = 32 * 1024 * 1024
"""A looped file up to this size is read and demuxed once."""


class FileSource:
    """A Source (see base.py) over a file, repeated for ever where `loop` is set.

    With `keyframes_only` the further rounds of a file that is kept in memory leave all other packets out. The tokens count them.
    """

    def __init__(self, path: Path, *, loop: bool, keyframes_only: bool = False) -> None:
        self.path = path
        self._loop = loop
        self._keyframes_only = keyframes_only
        self._demuxer = self._new_demuxer()
        self._info: StreamInfo | None = None
        self._kept: list[Packet] | None = None

    def _new_demuxer(self) -> Demuxer:
        options = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
        return Demuxer(
            Address(
                url=f"file:{self.path}",
                shown=str(self.path),
                options=options,
                live=False,
                open_timeout_s=_UNLIMITED_S,
                read_timeout_s=_UNLIMITED_S,
            )
        )

    def open(self) -> StreamInfo:
        """See Source.open."""
        if self.path.is_dir():
            raise NotVideo(f"{self.path} is a folder; name a video file")
        if not self.path.exists():
            raise NotFound(f"{self.path} does not exist: check the path")
        if not self.path.is_file():
            raise NotVideo(f"{self.path} is no regular file")
        if not os.access(self.path, os.R_OK):
            raise NotFound(f"{self.path} may not be read by this user: check its permissions")
        self._info = self._demuxer.open()
        return self._info

    def packets(self) -> Iterator[Packet]:
        """See Source.packets. With `loop`, tokens and time stamps go on rising from one round to the next."""
        assert self._info is not None
        ticks_per_frame = self._frame_ticks(self._info)
        begin = shift = 0
        round_: Iterable[Packet] = self._first_round() if self._loop else self._demuxer.packets()
        while True:
            count = 0
            shown, decoded = _Span(), _Span()
            for packet in round_:
                yield _moved(packet, begin, shift) if begin or shift else packet
                count += 1
                shown.add(packet.pts)
                decoded.add(packet.dts)
            if not self._loop or not count:  # an empty round would be followed by others, for ever
                return
            ticks = max(shown.ticks, decoded.ticks) + ticks_per_frame
            begin, shift = begin + count, shift + ticks
            if self._keyframes_only and self._kept is not None:
                yield from self._key_frames(begin, shift, count=count, ticks=ticks)
            round_ = self._further_round()

    def _first_round(self) -> Iterator[Packet]:
        """The packets of the file; kept for the further rounds while they are few bytes."""
        kept: list[Packet] | None = []
        size = 0
        for packet in self._demuxer.packets():
            if kept is not None:
                kept.append(packet)
                size += len(packet.data)
                if size > _KEEP_BYTES:
                    kept = None
            yield packet
        self._kept = kept

    def _key_frames(self, begin: int, shift: int, *, count: int, ticks: int) -> Iterator[Packet]:
        """Those of further rounds, for ever, where there are some. A round has `count` packets and takes `ticks`."""
        keys = [packet for packet in self._kept or () if packet.is_keyframe]
        while keys:
            for packet in keys:
                yield _moved(packet, begin, shift)
            begin, shift = begin + count, shift + ticks

    def _further_round(self) -> Iterable[Packet]:
        if self._kept is not None:
            return self._kept
        self._demuxer.close()
        self._demuxer = self._new_demuxer()
        self._demuxer.open()
        return self._demuxer.packets()

    @staticmethod
    def _frame_ticks(info: StreamInfo) -> int:
        """Ticks from the last frame of a round to the first of the next one."""
        if not info.frame_rate:
            return 1
        return max(1, round(1 / (info.frame_rate * info.time_base)))

    def close(self) -> None:
        """See Source.close."""
        self._demuxer.close()


class _Span:
    """From the lowest to the highest of the time stamps of a round."""

    def __init__(self) -> None:
        self._low: int | None = None
        self._high: int | None = None

    def add(self, stamp: int | None) -> None:
        if stamp is not None:
            self._low = stamp if self._low is None else min(self._low, stamp)
            self._high = stamp if self._high is None else max(self._high, stamp)

    @property
    def ticks(self) -> int:
        return 0 if self._low is None or self._high is None else self._high - self._low


def _moved(packet: Packet, begin: int, shift: int) -> Packet:
    """`packet` in a later round: read now, after `begin` packets, and `shift` ticks later in media time."""
    return replace(
        packet,
        token=packet.token + begin,
        pts=None if packet.pts is None else packet.pts + shift,
        dts=None if packet.dts is None else packet.dts + shift,
        received_ns=time.monotonic_ns(),
        captured_ns=time.time_ns(),
    )
