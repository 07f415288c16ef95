"""Which key frames stand alone, and that they do: decoded by themselves, out of nothing but their own bytes, they are right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clips import ClipCache, Marker
from support.frames import marker_of, packets_of

from streamd.decoders.bitstream import nal_units
from streamd.decoders.cpu import CpuDecoder
from streamd.decoders.standalone import KeyframeStream
from streamd.types import Packet, StreamInfo

CLIP = {"frames": 24, "gop": 12, "camera": 6}
X265 = "log-level=none:pools=none:keyint=12:min-keyint=1:scenecut=0:bframes=2:b-adapt=0"
HEVC_OPEN_GOP = {"codec": "hevc", "b_frames": 2, "encoder_options": {"x265-params": f"{X265}:open-gop=1"}}
ALONE = [
    (".ts", {}),
    (".mp4", {}),
    (".ts", {"b_frames": 2}),
    (".ts", {"encoder_options": {"profile": "baseline"}}),
    (".ts", {"encoder_options": {"x264-params": "slices=4"}}),
    (".ts", {"encoder_options": {"x264-params": "aud=1:repeat-headers=1"}}),
    (".ts", {"codec": "hevc"}),
    (".mp4", {"codec": "hevc", "b_frames": 2}),
    (".mkv", {"codec": "hevc", "pixel_format": "yuv420p10le"}),
    (".ts", HEVC_OPEN_GOP),
]
NOT_ALONE = [
    ({"encoder_options": {"x264-params": "intra-refresh=1:keyint=12"}}, "predicted slices"),
    ({"encoder_options": {"x264-params": "open-gop=1:keyint=12:min-keyint=1:scenecut=0:bframes=2:b-adapt=0"}}, "no IDR"),
    ({"encoder_options": {"x264-params": "interlaced=1"}}, "fields"),
    ({"pixel_format": "yuv422p"}, "4:2:2"),
    ({"codec": "hevc", "pixel_format": "yuv444p"}, "4:4:4"),
]


def kinds(codec: str, data: bytes) -> list[int]:
    return [unit[0] & 0x1F if codec == "h264" else unit[0] >> 1 & 0x3F for unit in nal_units(data)]


def key_frames(path: Path) -> tuple[StreamInfo, list[Packet]]:
    info, packets = packets_of(path)
    return info, [packet for packet in packets if packet.is_keyframe]


def decoded_alone(info: StreamInfo, packet: Packet) -> list[Marker | None]:
    decoder = CpuDecoder(replace(info, extradata=b"", reorder_frames=0), device="cpu")
    return [marker_of(frame) for frames in (decoder.decode(packet), decoder.drain()) for frame in frames]


@pytest.mark.parametrize(("suffix", "parameters"), ALONE, ids=str)
def test_a_key_frame_that_stands_alone_is_decoded_from_its_own_bytes(clip: ClipCache, suffix, parameters):
    info, keys = key_frames(clip(suffix, **CLIP, **parameters))
    stream = KeyframeStream(info.codec, info.extradata)
    assert len(keys) == 2
    for packet, number in zip(keys, (0, 12), strict=True):
        alone = stream.standalone(packet.data)
        assert (alone.format.width, alone.format.height) == (320, 240)
        assert decoded_alone(info, replace(packet, data=alone.data)) == [Marker(6, number)]


@pytest.mark.parametrize(("parameters", "why"), NOT_ALONE, ids=str)
def test_what_may_need_other_pictures_does_not_stand_alone(clip: ClipCache, parameters, why):
    info, keys = key_frames(clip(".ts", **CLIP, **parameters))
    stream = KeyframeStream(info.codec, info.extradata)
    assert stream.standalone(keys[-1].data) is None, why


def test_a_cra_picture_becomes_one_that_begins_anew(clip: ClipCache):
    info, keys = key_frames(clip(".ts", **CLIP, **HEVC_OPEN_GOP))
    assert 21 in kinds("hevc", keys[1].data)
    alone = KeyframeStream("hevc", info.extradata).standalone(keys[1].data)
    assert 21 not in kinds("hevc", alone.data)
    assert 16 in kinds("hevc", alone.data)


def test_two_pictures_in_a_packet_do_not_stand_alone(clip: ClipCache):
    info, packets = packets_of(clip(".ts", **CLIP))
    for second in (packets[0], packets[1]):
        assert KeyframeStream("h264", info.extradata).standalone(packets[0].data + second.data) is None


def test_the_delimiter_stays_in_front_and_all_sets_follow(clip: ClipCache):
    info, keys = key_frames(clip(".ts", **CLIP))
    picture_only = b"".join(b"\0\0\1" + unit for unit in nal_units(keys[1].data) if unit[0] & 0x1F in {9, 5})
    alone = KeyframeStream("h264", info.extradata).standalone(picture_only)
    assert kinds("h264", alone.data) == [9, 7, 8, 5]


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_sets_that_come_apart_are_put_together(clip: ClipCache, codec):
    """The SPS in the packets, the PPS in the description."""
    info, keys = key_frames(clip(".ts", codec=codec, **CLIP))
    sps, pps = (7, 8) if codec == "h264" else (33, 34)

    def without(kind: int, data: bytes) -> bytes:
        return b"".join(b"\0\0\1" + unit for unit in nal_units(data) if kinds(codec, b"\0\0\1" + unit) != [kind])

    stream = KeyframeStream(codec, without(sps, info.extradata))
    alone = stream.standalone(without(pps, keys[0].data))
    assert decoded_alone(info, replace(keys[0], data=alone.data)) == [Marker(6, 0)]


def test_the_size_is_that_of_the_set_which_the_picture_names(clip: ClipCache):
    """A file may describe several."""
    info, keys = key_frames(clip(".mp4", **CLIP))
    other, _ = packets_of(clip(".mp4", **CLIP, size=(322, 242), encoder_options={"x264-params": "sps-id=3"}))
    for extradata in (other.extradata + info.extradata, info.extradata + other.extradata):
        picture = b"".join(b"\0\0\1" + unit for unit in nal_units(keys[1].data) if unit[0] & 0x1F == 5)
        alone = KeyframeStream("h264", extradata).standalone(picture)
        assert (alone.format.width, alone.format.height) == (320, 240)
        assert kinds("h264", alone.data) == [7, 7, 8, 8, 5]


def test_sets_that_change_in_mid_stream_replace_the_old_ones(clip: ClipCache):
    info, small = key_frames(clip(".ts", **CLIP))
    _, large = key_frames(clip(".ts", **CLIP, size=(322, 242)))
    stream = KeyframeStream("h264", info.extradata)
    found = [stream.standalone(packet.data) for packet in (small[0], large[0], small[1])]
    assert [alone.format.width for alone in found] == [320, 322, 320]
    assert [kinds("h264", alone.data).count(7) for alone in found] == [1, 1, 1]


def test_without_its_sets_no_key_frame_stands_alone(clip: ClipCache):
    _, keys = key_frames(clip(".mp4", **CLIP))
    picture = b"".join(b"\0\0\1" + unit for unit in nal_units(keys[1].data) if unit[0] & 0x1F == 5)
    assert KeyframeStream("h264", b"").standalone(picture) is None


@given(codec=st.sampled_from(["h264", "hevc"]), extradata=st.binary(max_size=60), data=st.binary(max_size=200))
def test_garbage_does_not_stand_alone(codec, extradata, data):
    begin = {"h264": b"\0\0\1\x65", "hevc": b"\0\0\1\x26\x01"}[codec]
    sets = {"h264": b"\0\0\1\x67", "hevc": b"\0\0\1\x42\x01"}[codec]
    stream = KeyframeStream(codec, sets + extradata)
    assert stream.standalone(data) is None or begin in data
    found = stream.standalone(sets + data + begin + data)
    assert found is None or found.format.width > 0
