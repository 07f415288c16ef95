"""What can be read from an encoded packet without decoding it: its NAL units and sequence headers."""

from __future__ import annotations

import re
from collections.abc import Iterator

_START_CODE = re.compile(b"\x00\x00\x01")
_H264_SPS, _H264_PPS = 7, 8
_HEVC_VPS, _HEVC_SPS, _HEVC_PPS = 32, 33, 34
_HEVC_RASL = {8, 9}
_HEVC_FIRST_NON_PICTURE = 32


def nal_units(data: bytes) -> Iterator[bytes]:
    """The NAL units of an Annex B access unit, start codes and trailing zeros taken off (ITU-T H.264, B.1)."""
    starts = [match.end() for match in _START_CODE.finditer(data)]
    for begin, following in zip(starts, [*starts[1:], len(data) + 3], strict=False):  # without a start code there is none
        unit = data[begin : following - 3].rstrip(b"\x00")
        if unit:
            yield unit


def sequence_headers(codec: str, data: bytes) -> bytes:
    """The sequence parameter sets in an access unit of H.264 or HEVC, joined; empty when it has none, or for other codecs."""
    if codec == "h264":
        return b"".join(unit for unit in nal_units(data) if _kind(codec, unit) == _H264_SPS)
    if codec == "hevc":
        return b"".join(unit for unit in nal_units(data) if _kind(codec, unit) in {_HEVC_VPS, _HEVC_SPS})
    return b""


def parameter_sets(codec: str, data: bytes) -> bytes:
    """The parameter sets in an access unit of H.264 or HEVC, in Annex B form; empty when it has none, or for other codecs."""
    wanted = {"h264": {_H264_SPS, _H264_PPS}, "hevc": {_HEVC_VPS, _HEVC_SPS, _HEVC_PPS}}.get(codec, set())
    return b"".join(b"\x00\x00\x00\x01" + unit for unit in nal_units(data) if _kind(codec, unit) in wanted)


def sequence_parameter_set(codec: str, data: bytes) -> bytes | None:
    """The first sequence parameter set in Annex B data, without its start code."""
    wanted = _H264_SPS if codec == "h264" else _HEVC_SPS
    return next((unit for unit in nal_units(data) if _kind(codec, unit) == wanted), None)


def _kind(codec: str, unit: bytes) -> int:
    """The NAL unit's type."""
    return unit[0] & 0x1F if codec == "h264" else (unit[0] >> 1) & 0x3F


def is_skipped_leading(codec: str, data: bytes) -> bool:
    """Whether an access unit is a random access skipped leading picture (RASL) of HEVC (ITU-T H.265, 7.4.2.2).

    Such pictures are shown before the key frame that they follow, and refer to pictures before it: after a start there they cannot be
    decoded.
    """
    if codec != "hevc":
        return False
    kinds = (_kind(codec, unit) for unit in nal_units(data))
    return next((kind for kind in kinds if kind < _HEVC_FIRST_NON_PICTURE), None) in _HEVC_RASL
