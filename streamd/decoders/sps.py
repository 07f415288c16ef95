"""What a sequence parameter set says of the pictures that follow: all that a decoder session is made for. Pure."""

from __future__ import annotations

import contextlib
import functools
from typing import NamedTuple

_H264_WITH_CHROMA = {100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135}
"""Profiles whose parameter sets tell chroma format, bit depths and scaling lists (ITU-T H.264, 7.3.2.1.1)."""
_CHROMA_STEPS = {0: (1, 1), 1: (2, 2), 2: (2, 1), 3: (1, 1)}
"""Luma samples for each chroma sample, across and down, by chroma_format_idc."""


class PictureFormat(NamedTuple):
    """Streams whose formats are equal can share a decoder session."""

    codec: str
    width: int
    """As shown, after cropping."""
    height: int
    coded_width: int
    coded_height: int
    left: int
    """Luma samples that are cut away there."""
    top: int
    chroma_format: int
    luma_depth: int
    chroma_depth: int
    is_progressive: bool
    pictures_held: int
    """Of the decoded picture buffer: references (H.264), or the whole of it (HEVC)."""


@functools.lru_cache(maxsize=4096)
def picture_format(codec: str, sps: bytes) -> PictureFormat | None:
    """The format that a sequence parameter set describes; None for other codecs, and where it cannot be read.

    Args:
        codec: `h264` or `hevc`.
        sps: the NAL unit, header included, without a start code.
    """
    parse = {"h264": _h264, "hevc": _hevc}.get(codec)
    if parse is None:
        return None
    with contextlib.suppress(LookupError, ValueError):
        found = parse(Bits(sps))
        if found.width > 0 and found.height > 0:
            return found
    return None


def sequence_id(codec: str, sps: bytes) -> int:
    """The id of a sequence parameter set of H.264 or HEVC. Raises IndexError, ValueError where it cannot be read."""
    read = Bits(sps)
    if codec == "h264":
        read.bits(8 + 24)
    else:
        read.bits(16 + 4)
        layers = read.bits(3)
        read.flag()
        _skip_profile_tier_level(read, layers)
    return read.unsigned()


class Bits:
    """Reads bits and Exp-Golomb codes (H.264, 9.1) from a NAL unit, emulation prevention taken out. IndexError behind the end."""

    def __init__(self, unit: bytes) -> None:
        data = unit.replace(b"\x00\x00\x03", b"\x00\x00")
        self._value = int.from_bytes(data, "big")
        self._left = len(data) * 8

    def bits(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise IndexError
        return (self._value >> self._left) & ((1 << count) - 1)

    def flag(self) -> bool:
        return bool(self.bits(1))

    def unsigned(self) -> int:
        zeros = 0
        while not self.bits(1):
            zeros += 1
            if zeros > 32:
                raise ValueError
        return (1 << zeros) - 1 + self.bits(zeros)

    def signed(self) -> int:
        code = self.unsigned()
        return (code + 1) // 2 if code % 2 else -(code // 2)


def _h264(read: Bits) -> PictureFormat:
    """ITU-T H.264, 7.3.2.1.1."""
    read.bits(8)
    profile = read.bits(8)
    read.bits(16)
    read.unsigned()
    chroma, separate, luma_depth, chroma_depth = 1, False, 8, 8
    if profile in _H264_WITH_CHROMA:
        chroma = read.unsigned()
        separate = chroma == 3 and read.flag()
        luma_depth, chroma_depth = 8 + read.unsigned(), 8 + read.unsigned()
        read.flag()
        if read.flag():
            for number in range(12 if chroma == 3 else 8):
                if read.flag():
                    _skip_scaling_list(read, 16 if number < 6 else 64)
    read.unsigned()
    order = read.unsigned()
    if order == 0:
        read.unsigned()
    elif order == 1:
        read.flag()
        read.signed()
        read.signed()
        for _ in range(read.unsigned()):
            read.signed()
    references = read.unsigned()
    read.flag()
    width, height = 16 * (read.unsigned() + 1), 16 * (read.unsigned() + 1)
    is_progressive = read.flag()
    if not is_progressive:
        read.flag()
        height *= 2
    read.flag()
    across, down = (1, 1) if separate else _CHROMA_STEPS[chroma]
    crop = [read.unsigned() for _ in range(4)] if read.flag() else [0, 0, 0, 0]
    rest = (chroma, luma_depth, chroma_depth, is_progressive, references)
    return _format("h264", (width, height), crop, (across, down * (1 if is_progressive else 2)), rest)


def _skip_scaling_list(read: Bits, size: int) -> None:
    """ITU-T H.264, 7.3.2.1.1.1."""
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + read.signed()) % 256
        last = following or last


def _hevc(read: Bits) -> PictureFormat:
    """ITU-T H.265, 7.3.2.2.1."""
    read.bits(16 + 4)
    layers = read.bits(3)
    read.flag()
    _skip_profile_tier_level(read, layers)
    read.unsigned()
    chroma = read.unsigned()
    separate = chroma == 3 and read.flag()
    width, height = read.unsigned(), read.unsigned()
    across, down = (1, 1) if separate else _CHROMA_STEPS[chroma]
    crop = [read.unsigned() for _ in range(4)] if read.flag() else [0, 0, 0, 0]
    luma_depth, chroma_depth = 8 + read.unsigned(), 8 + read.unsigned()
    read.unsigned()
    held = 0
    for _ in range(layers + 1 if read.flag() else 1):
        held = max(held, read.unsigned() + 1)
        read.unsigned()
        read.unsigned()
    return _format("hevc", (width, height), crop, (across, down), (chroma, luma_depth, chroma_depth, True, held))


def _skip_profile_tier_level(read: Bits, layers: int) -> None:
    """ITU-T H.265, 7.3.3."""
    read.bits(88 + 8)
    present = [(read.flag(), read.flag()) for _ in range(layers)]
    if layers:
        read.bits(2 * (8 - layers))
    for profile, level in present:
        read.bits(88 * profile + 8 * level)


def _format(
    codec: str, size: tuple[int, int], crop: list[int], steps: tuple[int, int], rest: tuple[int, int, int, bool, int]
) -> PictureFormat:
    (width, height), (left, right, top, bottom), (across, down) = size, crop, steps
    return PictureFormat(
        codec,
        width - (left + right) * across,
        height - (top + bottom) * down,
        width,
        height,
        left * across,
        top * down,
        *rest,
    )
