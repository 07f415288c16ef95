"""What parameter sets say of pictures, against what FFmpeg makes of the same streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clips import ClipCache
from support.frames import packets_of

from streamd.decoders.bitstream import parameter_sets, sequence_parameter_set
from streamd.decoders.sps import PictureFormat, picture_format


def format_of(path) -> tuple[PictureFormat | None, tuple[int, int]]:
    info, packets = packets_of(path)
    sets = info.extradata or parameter_sets(info.codec, packets[0].data)
    sps = sequence_parameter_set(info.codec, sets)
    assert sps is not None
    return picture_format(info.codec, sps), (info.width, info.height)


@pytest.mark.parametrize("size", [(320, 240), (322, 242), (638, 266), (1280, 530), (1280, 532), (176, 144)])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_the_size_as_shown(clip: ClipCache, codec, size):
    found, expected = format_of(clip(".mp4", codec=codec, size=size, frames=2, gop=2))
    assert (found.width, found.height) == expected == size


@pytest.mark.parametrize(
    ("codec", "pixel_format", "chroma", "depth"),
    [
        ("h264", "yuv420p", 1, 8),
        ("h264", "yuv422p", 2, 8),
        ("h264", "yuv444p", 3, 8),
        ("h264", "yuv420p10le", 1, 10),
        ("h264", "gray", 0, 8),
        ("hevc", "yuv420p10le", 1, 10),
        ("hevc", "yuv422p12le", 2, 12),
        ("hevc", "yuv444p", 3, 8),
    ],
)
def test_chroma_and_depth(clip: ClipCache, codec, pixel_format, chroma, depth):
    found, size = format_of(clip(".mp4", codec=codec, pixel_format=pixel_format, size=(322, 242), frames=2, gop=2))
    assert (found.chroma_format, found.luma_depth, found.chroma_depth) == (chroma, depth, depth)
    assert (found.width, found.height) == size


@pytest.mark.parametrize(
    "options",
    [
        {"profile": "baseline"},
        {"profile": "main"},
        {"x264-params": "cqm=jvt"},
        {"x264-params": "interlaced=1"},
        {"x264-params": "ref=4:bframes=2"},
        {"x264-params": "vbv-maxrate=500:vbv-bufsize=500:nal-hrd=vbr"},
    ],
    ids=str,
)
def test_profiles_and_options_of_h264(clip: ClipCache, options):
    found, size = format_of(clip(".mp4", size=(322, 244), frames=4, gop=4, encoder_options=options))
    assert (found.width, found.height) == size
    assert found.is_progressive == ("interlaced" not in str(options))


def test_other_codecs_have_none():
    assert picture_format("vp9", b"\x67") is None


@given(st.sampled_from(["h264", "hevc"]), st.binary(max_size=80))
def test_garbage_is_no_format_or_a_format_of_some_size(codec, data):
    found = picture_format(codec, data)
    assert found is None or (found.width > 0 and found.height > 0)


@given(st.integers(0, 60))
def test_a_cut_parameter_set_is_none(clip_sps, cut):
    assert picture_format("h264", clip_sps[:cut] if cut < 8 else clip_sps[:5]) is None


@pytest.fixture(scope="module")
def clip_sps(tmp_path_factory) -> bytes:
    from support.clips import make_clip

    info, packets = packets_of(make_clip(tmp_path_factory.mktemp("sps") / "clip.ts", frames=2, gop=2))
    sps = sequence_parameter_set("h264", info.extradata or parameter_sets("h264", packets[0].data))
    assert sps is not None
    return sps
