"""NAL units of encoded packets, found without decoding: checked against the lengths that MP4 stores before each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import pytest
from av.bitstream import BitStreamFilterContext
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.decoders.bitstream import is_skipped_leading, nal_units, sequence_headers

SIZES = [(320, 240), (320, 192)]


def access_units(path: Path, codec: str) -> Iterator[tuple[bytes, bytes, bool]]:
    """Each packet as MP4 stores it, as Annex B, and whether it is a key frame."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        filtering = BitStreamFilterContext(f"{codec}_mp4toannexb", stream)
        for packet in container.demux(stream):
            if packet.size:
                stored, is_key = bytes(packet), packet.is_keyframe
                yield stored, b"".join(bytes(filtered) for filtered in filtering.filter(packet)), is_key


def stored_units(stored: bytes) -> list[bytes]:
    """The NAL units of an MP4 sample, each after its length in four bytes."""
    units, at = [], 0
    while at < len(stored):
        size = int.from_bytes(stored[at : at + 4], "big")
        units.append(stored[at + 4 : at + 4 + size])
        at += 4 + size
    return units


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("b_frames", [0, 2])
def test_the_units_of_a_packet_are_those_that_the_container_counts(clip, codec, b_frames):
    packets = list(access_units(clip(".mp4", codec=codec, frames=12, gop=6, b_frames=b_frames), codec))
    assert len(packets) == 12
    for stored, data, is_key in packets:
        expected, found = stored_units(stored), list(nal_units(data))
        assert expected
        if is_key:  # the filter puts the parameter sets in
            assert len(found) > len(expected)
            assert [unit for unit in found if unit in expected] == expected
        else:
            assert found == expected


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"\x00\x00\x01", b"\x00\x00\x00\x01", bytes(7) + b"\x01"]),
            st.binary(min_size=1, max_size=40).map(lambda data: data.replace(b"\x00", b"\x03")),
        ),
        max_size=8,
    ),
    st.binary(max_size=4).map(lambda data: bytes(len(data))),
)
def test_units_are_told_apart_whatever_start_codes_and_trailing_zeros(units, trailing):
    stream = b"".join(start + unit for start, unit in units) + trailing
    assert list(nal_units(stream)) == [unit for _, unit in units]


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_at_all_give_units_that_are_not_empty_and_hold_no_start_code(data):
    units = list(nal_units(data))
    assert all(unit and b"\x00\x00\x01" not in unit and not unit.endswith(b"\x00") for unit in units)
    assert all(unit in data for unit in units)


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_sequence_headers_are_those_of_key_frames_and_stay_the_same_within_a_stream(clip, codec):
    packets = list(access_units(clip(".mp4", codec=codec, frames=12, gop=4), codec))
    headers = [sequence_headers(codec, data) for _, data, _ in packets]
    assert [bool(header) for header in headers] == [is_key for *_, is_key in packets]
    assert len({header for header in headers if header}) == 1
    assert sum(is_key for *_, is_key in packets) == 3


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_sequence_headers_change_with_the_size(clip, codec):
    packets = [next(access_units(clip(".mp4", codec=codec, frames=4, size=size), codec)) for size in SIZES]
    first, other = (sequence_headers(codec, data) for _, data, _ in packets)
    assert first
    assert other
    assert first != other


def test_picture_parameter_sets_and_pictures_are_no_sequence_headers():
    units = {7: b"\x67sps", 8: b"\x68pps", 5: b"\x65idr"}
    assert sequence_headers("h264", b"".join(b"\x00\x00\x01" + unit for unit in units.values())) == units[7]
    units = {32: b"\x40\x01vps", 33: b"\x42\x01sps", 34: b"\x44\x01pps", 19: b"\x26\x01idr"}
    assert sequence_headers("hevc", b"".join(b"\x00\x00\x01" + unit for unit in units.values())) == units[32] + units[33]


def test_other_codecs_have_no_sequence_headers_here():
    assert sequence_headers("vp9", b"\x00\x00\x01\x67sps") == b""


@pytest.mark.parametrize("data", [b"", b"\x00\x00", b"a packet of garbage", b"\x00\x00\x00\x09\x67length"])
def test_a_packet_without_a_start_code_has_no_units(data):
    assert list(nal_units(data)) == []
    assert sequence_headers("h264", data) == b""


@pytest.mark.parametrize(("kind", "is_skipped"), [(1, False), (6, False), (7, False), (8, True), (9, True), (19, False), (21, False)])
def test_only_rasl_pictures_of_hevc_are_skipped_leading_pictures(kind, is_skipped):
    delimiter, picture = b"\x00\x00\x01\x46\x01\x50", b"\x00\x00\x01" + bytes([kind << 1, 1]) + b"slice"
    assert is_skipped_leading("hevc", delimiter + picture) is is_skipped
    assert not is_skipped_leading("h264", delimiter + picture)


def test_a_packet_without_a_picture_is_no_skipped_leading_picture():
    assert not is_skipped_leading("hevc", b"\x00\x00\x01\x46\x01\x50")
    assert not is_skipped_leading("hevc", b"garbage")
