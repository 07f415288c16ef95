import os

import av
import numpy as np
import pytest
import torch
from support.clips import ClipCache, Marker, make_clip, marker_region, paint, read_marker, read_markers


def expected(frames: int, camera: int, *, first: int = 0) -> list[Marker]:
    return [Marker(camera=camera, frame=number) for number in range(first, first + frames)]


@pytest.mark.parametrize(
    ("suffix", "parameters"),
    [
        (".mp4", {"codec": "h264"}),
        (".mp4", {"codec": "h264", "b_frames": 2}),
        (".ts", {"codec": "h264", "b_frames": 2}),
        (".flv", {"codec": "h264"}),
        (".h264", {"codec": "h264"}),
        (".mkv", {"codec": "hevc", "b_frames": 2}),
        (".ts", {"codec": "hevc", "pixel_format": "yuv420p10le"}),
        (".hevc", {"codec": "hevc"}),
        (".webm", {"codec": "vp9"}),
        (".webm", {"codec": "vp8"}),
        (".mkv", {"codec": "av1"}),
        (".ts", {"codec": "mpeg2video", "b_frames": 2}),
        (".avi", {"codec": "mpeg4"}),
        (".mov", {"codec": "mjpeg"}),
        (".mp4", {"codec": "h264", "size": (160, 120)}),
        (".mp4", {"codec": "h264", "size": (318, 242), "matrix": "bt709", "full_range": True}),
    ],
    ids=str,
)
def test_every_frame_is_read_in_order_from_a_lossy_clip(clip: ClipCache, suffix, parameters):
    path = clip(suffix, **parameters, frames=12, gop=6, camera=201, first_frame=500)
    assert read_markers(path) == expected(12, 201, first=500)


@pytest.mark.parametrize("codec", ["h264", "hevc", "vp9", "av1"])
def test_no_encoder_changes_how_this_process_is_scheduled(tmp_path, codec):
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    make_clip(tmp_path / "clip.mkv", codec=codec, frames=2)
    assert (os.sched_getscheduler(0), os.sched_getparam(0)) == before


def test_a_clip_has_the_gop_the_tags_and_the_reordering_that_were_asked_for(clip: ClipCache):
    path = clip(".mp4", frames=30, gop=10, b_frames=2, matrix="bt709", full_range=True)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (int(stream.codec_context.colorspace), int(stream.codec_context.color_range)) == (1, 2)
        assert stream.codec_context.has_b_frames > 0
        packets = [packet for packet in container.demux(stream) if packet.size]
        assert [number for number, packet in enumerate(packets) if packet.is_keyframe] == [0, 10, 20]
        assert any(packet.pts != packet.dts for packet in packets)


def test_a_clip_without_tags_has_none(clip: ClipCache):
    with av.open(str(clip(".mp4", frames=12, gop=6))) as container:
        context = container.streams.video[0].codec_context
        assert (int(context.colorspace), int(context.color_range)) == (2, 0)


@pytest.mark.parametrize("matrix", [None, "bt709", "smpte170m", "bt2020nc"])
@pytest.mark.parametrize("full_range", [None, True])
def test_the_decoded_colours_are_the_painted_ones(clip: ClipCache, matrix, full_range):
    path = clip(".mp4", frames=3, matrix=matrix, full_range=full_range, encoder_options={"crf": "4"})
    with av.open(str(path)) as container:
        picture = next(container.decode(video=0)).to_ndarray(format="rgb24").astype(int)
    painted = paint((320, 240), camera=0, frame=0).astype(int)
    assert np.abs(picture - painted)[:60].mean() < 3  # above the marker, whose edges 4:2:0 blurs


def test_the_marker_survives_scaling_and_a_centre_crop(clip: ClipCache):
    with av.open(str(clip(".mp4", frames=12, gop=6, camera=7))) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    for number, picture in enumerate(pictures):
        planes = torch.from_numpy(picture).permute(2, 0, 1)[None].float()
        squashed = torch.nn.functional.interpolate(planes, (224, 224), mode="bilinear", antialias=True)
        assert read_marker(squashed[0].permute(1, 2, 0).numpy(), region=marker_region((320, 240))) == Marker(7, number)
        cropped = planes[:, :, 15:225, 55:265]
        small = torch.nn.functional.interpolate(cropped, (112, 112), mode="bilinear", antialias=True)
        normalised = (small[0].permute(1, 2, 0).numpy() / 255 - 0.45) / 0.22
        assert read_marker(normalised, region=marker_region((320, 240), crop=(210, 210))) == Marker(7, number)


def test_the_limits_of_the_numbers_are_readable():
    for marker in (Marker(0, 0), Marker(255, 65535), Marker(1, 32768)):
        assert read_marker(paint((320, 240), camera=marker.camera, frame=marker.frame)) == marker


def test_a_picture_without_a_whole_marker_reads_as_none():
    random = np.random.default_rng(1)
    assert read_marker(np.zeros((240, 320, 3), np.uint8)) is None
    assert all(read_marker(random.integers(0, 256, (240, 320, 3), np.uint8)) is None for _ in range(50))
    damaged = paint((320, 240), camera=3, frame=9)
    damaged[72:96, 64:88] ^= 255  # the first cell
    assert read_marker(damaged) is None


def test_the_same_clip_is_encoded_once(clip: ClipCache):
    assert clip(".mp4", frames=12, gop=6) == clip(".mp4", gop=6, frames=12)
    assert clip(".mp4", frames=12, gop=6) != clip(".mkv", frames=12, gop=6)
