"""What the packets' sizes, flags and time stamps say of a stream. Pure: no decoding, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from streamd.probe.report import Gop
from streamd.probe.watch import Seen

_TAIL = 8
"""So many of the latest time stamps are not used where there are enough: with B-frames, some between them are yet to come."""
_ENOUGH = 4 * _TAIL


def frame_rate(seen: Sequence[Seen], time_base: Fraction) -> float | None:
    """Frames a second by pts: how many different ones there are in the time from the first to the last; None where too few have one."""
    stamps = sorted({packet.pts for packet in seen if packet.pts is not None})
    stamps = stamps[:-_TAIL] if len(stamps) >= _ENOUGH else stamps
    if len(stamps) < 2:
        return None
    return round((len(stamps) - 1) / float((stamps[-1] - stamps[0]) * time_base), 3)


def bit_rate(seen: Sequence[Seen], seconds: float | None) -> float | None:
    """Bits a second over `seconds` of video."""
    return round(sum(packet.size_bytes for packet in seen) * 8 / seconds) if seconds else None


def has_b_frames(seen: Sequence[Seen]) -> bool:
    """Whether a packet is shown before one that came earlier."""
    latest: int | None = None
    for packet in seen:
        if packet.pts is None:
            continue
        if latest is not None and packet.pts < latest:
            return True
        latest = packet.pts
    return False


def gop(seen: Sequence[Seen], frame_rate: float | None) -> Gop:
    """Distances between key frames, in frames and, by `frame_rate` (a second), in seconds."""
    keys = [index for index, packet in enumerate(seen) if packet.is_keyframe]
    distances = [after - before for before, after in pairwise(keys)]
    if not distances:
        return Gop(at_least=len(seen) - keys[0] if keys else len(seen))
    mean = sum(distances) / len(distances)
    return Gop(frames=max(distances), shortest=min(distances), seconds=round(mean / frame_rate, 3) if frame_rate else None)
