"""The clips that are made to measure with."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import av
import pytest

from streamd.bench.clips import ClipSpec, make, repeated
from streamd.errors import StreamdError

TINY = ClipSpec(width=160, height=96, fps=10, seconds=2, gop=5, kbit_s=200)


def test_what_a_clip_is_stands_in_its_name():
    assert ClipSpec().name == "h264-1920x1080-30fps-4000k-4s-gop60.mp4"
    assert replace(TINY, codec="hevc").name == "hevc-160x96-10fps-200k-2s-gop5.mp4"


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_clip_is_what_was_asked_for(codec, tmp_path):
    path = make(replace(TINY, codec=codec), tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    with av.open(path) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.width, stream.height, stream.average_rate) == (codec, 160, 96, 10)
        packets = [packet for packet in container.demux(stream) if packet.size]
    assert [number for number, packet in enumerate(packets) if packet.is_keyframe] == [0, 5, 10, 15]
    assert len(packets) == 20
    assert all(packet.pts == packet.dts for packet in packets)


def test_every_picture_differs_from_the_last(small_clip):
    with av.open(small_clip) as container:
        pictures = [picture.to_ndarray(format="gray") for picture in container.decode(video=0)]
    assert all((a != b).mean() > 0.1 for a, b in pairwise(pictures))


def test_the_bit_rate_is_about_what_was_asked_for(small_clip):
    assert 300_000 * 0.4 < small_clip.stat().st_size * 8 / 2 < 300_000 * 2.5


def test_a_clip_is_made_once(tmp_path):
    path = make(TINY, tmp_path)
    path.write_bytes(b"made before")
    assert make(TINY, tmp_path).read_bytes() == b"made before"


def test_a_clip_that_was_left_unfinished_is_made_again(tmp_path):
    (tmp_path / TINY.name).with_suffix(".part").write_bytes(b"half")
    path = make(TINY, tmp_path)
    assert path.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("b_frames", [0, 2])
def test_a_clip_is_repeated_until_it_is_long_enough(tmp_path, b_frames):
    clip = make(replace(TINY, b_frames=b_frames), tmp_path)
    path = repeated(clip, tmp_path, frames=50)
    with av.open(clip) as one, av.open(path) as many:
        pictures = [picture.to_ndarray(format="gray") for picture in one.decode(video=0)]
        shown = list(many.decode(video=0))
    assert len(shown) == 60
    assert [picture.time for picture in shown] == pytest.approx([number / 10 for number in range(60)], abs=0.001)
    assert all((picture.to_ndarray(format="gray") == pictures[number % 20]).all() for number, picture in enumerate(shown))


def test_a_clip_that_is_long_enough_is_taken_as_it_is(small_clip, tmp_path):
    assert repeated(small_clip, tmp_path, frames=20) == small_clip
    assert list(tmp_path.iterdir()) == []


def test_a_clip_that_cannot_be_read_is_a_sentence(tmp_path):
    with pytest.raises(StreamdError, match=r"absent\.mp4 cannot be read: "):
        repeated(tmp_path / "absent.mp4", tmp_path, frames=20)
