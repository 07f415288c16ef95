"""Parameter sets of H.264 and HEVC as containers store them, turned into Annex B, which is what decoders are fed with."""

from __future__ import annotations

START_CODE = b"\x00\x00\x00\x01"


def is_annex_b(extradata: bytes) -> bool:
    """Whether `extradata` already starts with an Annex B start code."""
    return extradata.startswith((b"\x00\x00\x01", START_CODE))


def to_annex_b(codec: str, extradata: bytes) -> bytes:
    """Annex B parameter sets from an `avcC` (ISO/IEC 14496-15, 5.3.3.1) or `hvcC` (8.3.3.1) record.

    Data that is Annex B already, and data of other codecs, is returned as it is. Raises ValueError for a record cut short.
    """
    if is_annex_b(extradata) or not extradata:
        return extradata
    if codec == "h264":
        return b"".join(_avcc_units(extradata))
    if codec == "hevc":
        return b"".join(_hvcc_units(extradata))
    return extradata


def _unit(data: bytes, at: int) -> tuple[bytes, int]:
    """The NAL unit whose 16-bit length stands at `at`, with a start code, and where the next one begins."""
    size = int.from_bytes(data[at : at + 2], "big")
    end = at + 2 + size
    if len(data) < end or size == 0:
        raise ValueError("the container's parameter sets are cut short")
    return START_CODE + data[at + 2 : end], end


def _avcc_units(data: bytes) -> list[bytes]:
    if len(data) < 7:
        raise ValueError("the container's parameter sets are cut short")
    units = []
    at = 5
    for mask in (0x1F, 0xFF):  # counts of SPS (5 bits) and PPS
        if at >= len(data):
            raise ValueError("the container's parameter sets are cut short")
        count = data[at] & mask
        at += 1
        for _ in range(count):
            unit, at = _unit(data, at)
            units.append(unit)
    return units


def _hvcc_units(data: bytes) -> list[bytes]:
    if len(data) < 23:
        raise ValueError("the container's parameter sets are cut short")
    units = []
    at = 23
    for _ in range(data[22]):
        if len(data) < at + 3:
            raise ValueError("the container's parameter sets are cut short")
        count = int.from_bytes(data[at + 1 : at + 3], "big")
        at += 3
        for _ in range(count):
            unit, at = _unit(data, at)
            units.append(unit)
    return units
