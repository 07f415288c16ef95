"""Key frames that can go through a decoder between those of other cameras: proof that they need nothing, and all that they need. Pure.

A packet is called a key frame when decoding may begin with it. That is not enough here. With periodic intra refresh it holds predicted
slices; a field waits for the other field; an I picture that is no IDR leaves the pictures before it in the decoder. Each of these would
find another camera's picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from streamd.decoders.bitstream import nal_units
from streamd.decoders.sps import Bits, PictureFormat, picture_format, sequence_id

_START_CODE = b"\x00\x00\x00\x01"
_I_SLICE = 2
_BLA_W_LP, _CRA = 16, 21
_HEADER_BYTES = 16
"""The first fields of a slice header and of a PPS are found in so many."""


class _Syntax(NamedTuple):
    """The numbers of NAL unit types."""

    header_bytes: int
    sets: tuple[int, ...]
    """VPS, SPS, PPS."""
    pictures: frozenset[int]
    """All types that hold a picture or a part of it."""
    intra: frozenset[int]
    """Those of pictures that need none before them, and empty the decoder of these."""
    delimiter: int
    ends: frozenset[int]
    """End of sequence, of the stream: said of what came before."""


_SYNTAX = {
    "h264": _Syntax(1, (7, 8), frozenset({1, 2, 3, 4, 5, 19, 20, 21}), frozenset({5}), 9, frozenset({10, 11})),
    "hevc": _Syntax(2, (32, 33, 34), frozenset(range(32)), frozenset({16, 17, 18, 19, 20, _CRA}), 35, frozenset({36, 37})),
}
CODECS = frozenset(_SYNTAX)


class Standalone(NamedTuple):
    """One whole, intra-coded picture with its parameter sets."""

    data: bytes
    format: PictureFormat


class KeyframeStream:
    """One camera's stream: its parameter sets, from the description and from the packets so far, the latest of each id."""

    def __init__(self, codec: str, extradata: bytes) -> None:
        """`codec` is one of CODECS; `extradata` in Annex B form, as StreamInfo has it."""
        self._codec = codec
        self._syntax = _SYNTAX[codec]
        self._sets: dict[tuple[int, int], bytes] = {}
        self._take_sets(nal_units(extradata))

    def standalone(self, data: bytes) -> Standalone | None:
        """The key frame with all parameter sets of its camera. None where it may need more than that, or cannot be read."""
        syntax = self._syntax
        units = list(nal_units(data))
        pictures = [unit for unit in units if self._kind(unit) in syntax.pictures]
        self._take_sets(units)
        try:
            shape = self._format(pictures)
        except (IndexError, KeyError, ValueError):
            return None
        if shape is None:
            return None
        delimiter = [unit for unit in units if self._kind(unit) == syntax.delimiter]
        sets = [self._sets[key] for key in sorted(self._sets)]
        left_out = {*syntax.sets, syntax.delimiter, *syntax.ends}
        others = [self._renamed(unit) for unit in units if self._kind(unit) not in left_out]
        return Standalone(b"".join(_START_CODE + unit for unit in (*delimiter[:1], *sets, *others)), shape)

    def _kind(self, unit: bytes) -> int:
        return unit[0] & 0x1F if self._codec == "h264" else unit[0] >> 1 & 0x3F

    def _fields(self, unit: bytes) -> Bits:
        """What follows the NAL unit's header."""
        read = Bits(unit[:_HEADER_BYTES])
        read.bits(8 * self._syntax.header_bytes)
        return read

    def _take_sets(self, units: Iterable[bytes]) -> None:
        for unit in units:
            kind = self._kind(unit)
            if kind in self._syntax.sets:
                self._sets[kind, self._id(kind, unit)] = unit

    def _id(self, kind: int, unit: bytes) -> int:
        """Of a parameter set; -1 where it cannot be read: it is passed on, and pictures that refer to it are not taken."""
        sps, pps = self._syntax.sets[-2:]
        try:
            if kind == sps:
                return sequence_id(self._codec, unit)
            return self._fields(unit).unsigned() if kind == pps else self._fields(unit).bits(4)
        except (IndexError, ValueError):
            return -1

    def _format(self, pictures: Sequence[bytes]) -> PictureFormat | None:
        """Of the picture that these slices make; None where they are not one whole intra picture of one plain kind."""
        if not pictures or any(self._kind(unit) not in self._syntax.intra for unit in pictures):
            return None
        read_slice = self._h264_slice if self._codec == "h264" else self._hevc_slice
        begins, pps_ids = zip(*map(read_slice, pictures), strict=True)
        if begins != (True, *(False,) * (len(pictures) - 1)):
            return None
        sps_kind, pps_kind = self._syntax.sets[-2:]
        pps = self._fields(self._sets[pps_kind, pps_ids[0]])
        pps.unsigned()
        shape = picture_format(self._codec, self._sets[sps_kind, pps.unsigned()])
        if shape is None or not shape.is_progressive or shape.chroma_format != 1 or shape.luma_depth != shape.chroma_depth:
            return None
        return shape

    def _h264_slice(self, unit: bytes) -> tuple[bool, int]:
        """Whether a slice begins a picture, and the id of its PPS. Raises ValueError for one that is not intra-coded."""
        read = self._fields(unit)
        first_macroblock, kind, pps_id = read.unsigned(), read.unsigned(), read.unsigned()
        if kind % 5 != _I_SLICE:
            raise ValueError("a predicted slice")
        return first_macroblock == 0, pps_id

    def _hevc_slice(self, unit: bytes) -> tuple[bool, int]:
        """As `_h264_slice`. All slices of such pictures are intra-coded (ITU-T H.265, 7.4.7.1)."""
        if (unit[0] & 1) << 5 | unit[1] >> 3:
            raise ValueError("another layer")
        read = self._fields(unit)
        begins = read.flag()
        read.flag()
        return begins, read.unsigned()

    def _renamed(self, unit: bytes) -> bytes:
        """A CRA picture as a BLA picture: so it is called where a stream is joined to another one (ITU-T H.265, 3.17)."""
        if self._codec != "hevc" or self._kind(unit) != _CRA:
            return unit
        return bytes([unit[0] & 0x81 | _BLA_W_LP << 1]) + unit[1:]
