"""The CPU decoder's own: the codecs and pixel formats that only it takes. What all decoders promise is in test_contract.py."""

from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest
import torch
from support.bench import Bench
from support.clips import ClipCache, Marker
from support.frames import packets_of, plane

from streamd.decoders.cpu import CpuDecoder, frame_from_av
from streamd.errors import DecodeError, DecoderUnavailable
from streamd.types import ColorTags, Matrix, StreamInfo

FRAMES = 8
CLIP = {"frames": FRAMES, "gop": 4, "camera": 6}
INFO = StreamInfo(codec="h264", width=320, height=240, time_base=Fraction(1, 25))


@pytest.mark.parametrize(
    ("suffix", "parameters"),
    [
        (".mkv", {"codec": "av1"}),
        (".mov", {"codec": "mjpeg"}),
        (".avi", {"codec": "mpeg4"}),
        (".mp4", {"codec": "h264", "pixel_format": "yuv422p"}),
        (".mp4", {"codec": "h264", "pixel_format": "yuv420p10le"}),
        (".mp4", {"codec": "h264", "pixel_format": "yuv422p10le", "b_frames": 2}),
        (".mp4", {"codec": "h264", "pixel_format": "yuv444p", "size": (321, 241)}),
        (".mkv", {"codec": "hevc", "pixel_format": "yuv420p12le"}),
        (".mkv", {"codec": "hevc", "pixel_format": "gray"}),
        (".mkv", {"codec": "ffv1", "pixel_format": "bgr0"}),
    ],
    ids=str,
)
def test_it_takes_what_the_gpu_may_not_take(cpu: Bench, clip: ClipCache, suffix, parameters):
    info, packets = packets_of(clip(suffix, **parameters, **CLIP))
    shots = cpu.decoded(info, packets)
    assert [shot.marker for shot in shots] == [Marker(6, number) for number in range(FRAMES)]
    assert {shot.size for shot in shots} == {parameters.get("size", (320, 240))}
    depth = next((bits for bits in (10, 12) if str(bits) in parameters.get("pixel_format", "")), 8)
    assert {(shot.frame.bit_depth, shot.frame.shift) for shot in shots} == {(depth, 0)}
    assert {len(shot.planes) for shot in shots} == {1 if parameters.get("pixel_format") == "gray" else 3}


def test_frames_are_handed_over_on_the_device_that_was_asked_for(clip: ClipCache):
    info, packets = packets_of(clip(".mp4", **CLIP))
    decoder = CpuDecoder(info, device=torch.device("meta"))  # a device that every machine has
    (frame,) = decoder.decode(packets[0])
    decoder.close()
    assert {str(samples.device) for samples in (frame.y, frame.u, frame.v)} == {"meta"}
    assert (frame.width, frame.height, frame.token) == (320, 240, 0)


def test_planes_share_the_memory_of_the_picture():
    picture = av.VideoFrame(64, 48, "yuv420p")
    frame = frame_from_av(picture, token=3, tags=ColorTags(), rotation_deg=0)
    picture.planes[0].update(bytes([7]) * picture.planes[0].buffer_size)
    assert frame.y.unique().tolist() == [7]
    assert frame.token == 3


def test_planes_outlive_the_decoder(clip: ClipCache):
    info, packets = packets_of(clip(".mp4", **CLIP))
    decoder = CpuDecoder(info, device="cpu")
    (frame,) = decoder.decode(packets[0])
    before = plane(frame.y)
    decoder.close()
    del decoder
    assert np.array_equal(plane(frame.y), before)


@pytest.mark.parametrize("pixel_format", ["rgb24", "bgra", "gbrp", "pal8"])
def test_pictures_in_rgb_are_planes_of_green_blue_and_red(pixel_format):
    colour = np.full((48, 64, 3), (200, 100, 50), np.uint8)
    picture = av.VideoFrame.from_ndarray(colour, format="rgb24")
    if pixel_format != "pal8":  # which swscale does not write
        picture = picture.reformat(format=pixel_format)
    else:
        palette = np.zeros((256, 4), np.uint8)
        palette[9] = (255, 200, 100, 50)  # alpha, red, green, blue
        picture = av.VideoFrame.from_ndarray((np.full((48, 64), 9, np.uint8), palette), format="pal8")
    frame = frame_from_av(picture, token=0, tags=ColorTags(), rotation_deg=0)
    assert [int(samples[0, 0]) for samples in (frame.y, frame.u, frame.v)] == [100, 50, 200]
    assert (frame.matrix, frame.full_range, frame.bit_depth) == (Matrix.IDENTITY, True, 8)


@pytest.mark.parametrize(("pixel_format", "chroma"), [("yuv411p", (64, 48)), ("nv12", (64, 48)), ("yuyv422", (64, 48))])
def test_other_formats_become_full_planes(pixel_format, chroma):
    grey = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 128, np.uint8), format="rgb24").reformat(format=pixel_format)
    frame = frame_from_av(grey, token=0, tags=ColorTags(), rotation_deg=0)
    assert (frame.width, frame.height, tuple(frame.u.shape[::-1])) == (64, 48, chroma)
    assert int(frame.u[20, 20]) == 128


def test_the_pictures_own_tags_go_before_those_of_the_stream():
    picture = av.VideoFrame(64, 48, "yuv420p")
    told = frame_from_av(picture, token=0, tags=ColorTags(9, 2), rotation_deg=0)
    assert (told.matrix, told.full_range) == (Matrix.BT2020, True)
    picture.colorspace, picture.color_range = 1, 1
    own = frame_from_av(picture, token=0, tags=ColorTags(9, 2), rotation_deg=0)
    assert (own.matrix, own.full_range) == (Matrix.BT709, False)


@pytest.mark.parametrize("codec", ["nothing", "aac"])
def test_a_codec_that_is_unknown_or_no_video_is_refused(codec):
    with pytest.raises(DecoderUnavailable, match=codec):
        CpuDecoder(replace(INFO, codec=codec), device="cpu")


def test_a_rejected_packet_is_told_with_the_codec(clip: ClipCache):
    info, packets = packets_of(clip(".mp4", **CLIP))
    decoder = CpuDecoder(info, device="cpu")
    with pytest.raises(DecodeError, match="rejects a packet of h264"):
        decoder.decode(replace(packets[0], data=b"\xff" * 400))
    decoder.close()


def test_nothing_behind_a_packets_end_is_read(cpu: Bench, clip: ClipCache):
    """MPEG-4's decoder looks for the next start code beyond the end: what lies there in memory must be nothing."""
    path = clip(".avi", codec="mpeg4", frames=60, gop=10, camera=6)
    info, packets = packets_of(path)
    for _ in range(3):
        assert [shot.marker for shot in cpu.decoded(info, packets)] == [Marker(6, number) for number in range(60)]
