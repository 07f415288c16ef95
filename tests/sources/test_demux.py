import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.stream import Disposition
from support.clips import ClipCache, Marker, paint
from support.frames import packets_of, seen

from streamd.decoders.cpu import CpuDecoder
from streamd.errors import NotVideo
from streamd.sources import demux
from streamd.types import ColorTags

FRAMES = 12
CLIP = {"frames": FRAMES, "gop": 6, "camera": 4}
ALL = [Marker(4, number) for number in range(FRAMES)]


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (Fraction(25), Fraction(25)),
        (Fraction(30000, 1001), Fraction(30000, 1001)),
        (Fraction(1, 60), Fraction(1, 60)),
        (Fraction(1000), Fraction(1000)),
        (Fraction(90000), None),
        (Fraction(0), None),
        (Fraction(-1908032, 21865), None),
        (None, None),
    ],
)
def test_a_frame_rate_that_cannot_be_is_not_told(rate, told):
    assert demux._plausible(rate) == told


# --- rotation: ISO/IEC 14496-12, 8.3.2 and 6.2.2: (x, y, 1) of the track times the matrix is where the pixel is shown, y downwards

UPRIGHT = (1, 0, 0, 1)
CLOCKWISE = {0: UPRIGHT, 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}


def turned(path: Path, *, clockwise_deg: int, into: Path) -> Path:
    """A copy of an MP4 file whose track header says that its pictures are shown turned."""
    data = bytearray(path.read_bytes())
    a, b, c, d = (value << 16 for value in CLOCKWISE[clockwise_deg])
    matrix = data.index(b"tkhd") + 4 + 40
    assert struct.unpack_from(">9i", data, matrix) == (1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    struct.pack_into(">9i", data, matrix, a, b, 0, c, d, 0, 0, 0, 1 << 30)
    into.write_bytes(data)
    return into


@pytest.mark.parametrize("clockwise_deg", CLOCKWISE)
def test_the_rotation_is_the_clockwise_turn_that_the_file_asks_for(tmp_path: Path, clip: ClipCache, clockwise_deg):
    path = turned(clip(".mp4", **CLIP), clockwise_deg=clockwise_deg, into=tmp_path / "turned.mp4")
    info, packets = packets_of(path)
    assert info.rotation_deg == clockwise_deg
    assert (info.width, info.height) == (320, 240), "as coded, not as shown"
    assert seen(info, packets) == ALL, "the picture that was looked at is not lost"
    decoder = CpuDecoder(info, device="cpu")
    assert [frame.rotation_deg for packet in packets for frame in decoder.decode(packet)] == [clockwise_deg] * FRAMES
    decoder.close()


def test_a_rotation_that_pyav_wrote_is_read_with_the_same_sense(tmp_path: Path):
    """PyAV and FFmpeg count counterclockwise: a clip marked with 90 is shown with a clockwise turn of 270."""
    path = tmp_path / "turned.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        stream.set_display_rotation(90)
        picture = av.VideoFrame.from_ndarray(paint((320, 240), camera=4, frame=0), format="rgb24")
        container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    assert packets_of(path)[0].rotation_deg == 270


# --- colours


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
@pytest.mark.parametrize(
    ("tags", "told"),
    [
        ({}, ColorTags()),
        ({"matrix": "bt709"}, ColorTags(1, 1)),  # H.264 cannot tag a matrix without a range
        ({"matrix": "smpte170m"}, ColorTags(6, 1)),
        ({"matrix": "bt709", "full_range": True}, ColorTags(1, 2)),
        ({"full_range": True}, ColorTags(2, 2)),
    ],
    ids=str,
)
def test_the_colours_are_told_as_tagged(clip: ClipCache, suffix, tags, told):
    assert packets_of(clip(suffix, **CLIP, **tags))[0].color == told


# --- what else a container may hold


def test_a_file_with_sound_first_gives_the_packets_of_its_video_only(tmp_path: Path):
    path = tmp_path / "film.mkv"
    with av.open(str(path), "w") as container:
        sound = container.add_stream("aac", rate=48000, layout="mono")
        video = container.add_stream("libx264", rate=25, options={"preset": "ultrafast", "bf": "0"})
        video.width, video.height, video.pix_fmt = 320, 240, "yuv420p"
        for number in range(FRAMES):
            samples = av.AudioFrame.from_ndarray(np.zeros((1, 1920), np.float32), format="fltp", layout="mono")
            samples.sample_rate, samples.pts = 48000, 1920 * number
            container.mux(sound.encode(samples))
            picture = av.VideoFrame.from_ndarray(paint((320, 240), camera=4, frame=number), format="rgb24")
            container.mux(video.encode(picture))
        container.mux(sound.encode(None))
        container.mux(video.encode(None))
    info, packets = packets_of(path)
    assert info.codec == "h264"
    assert [packet.token for packet in packets] == list(range(FRAMES))
    assert seen(info, packets) == ALL


def test_a_cover_picture_is_no_video(tmp_path: Path):
    path = tmp_path / "song.m4a"
    with av.open(str(path), "w", format="mp4") as container:
        sound = container.add_stream("aac", rate=48000, layout="mono")
        cover = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 64, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        samples = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        samples.sample_rate = 48000
        container.mux(sound.encode(samples))
        container.mux(cover.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")))
        container.mux(sound.encode(None))
        container.mux(cover.encode(None))
    with pytest.raises(NotVideo, match="holds no video, only audio and a cover picture"):
        packets_of(path)


def test_frames_that_the_file_cuts_away_are_marked(tmp_path: Path, clip: ClipCache):
    """An edit list (ISO/IEC 14496-12, 8.6.6) that begins with the fourth frame: the first three are needed to decode it."""
    data = bytearray(clip(".mp4", **CLIP).read_bytes())
    entry = data.index(b"elst") + 4 + 8
    duration, start = struct.unpack_from(">Ii", data, entry)
    assert start == 0
    struct.pack_into(">Ii", data, entry, duration, 3 * 512)
    path = tmp_path / "cut.mp4"
    path.write_bytes(data)
    info, packets = packets_of(path)
    assert info.time_base == Fraction(1, 12800)
    assert [packet.is_discard for packet in packets] == [True] * 3 + [False] * (FRAMES - 3)
    assert [packet.pts for packet in packets] == [512 * number for number in range(-3, FRAMES - 3)]
    assert seen(info, packets) == ALL


# --- damage


def test_parameter_sets_that_are_cut_short_make_no_video(tmp_path: Path, clip: ClipCache):
    data = bytearray(clip(".mp4", **CLIP).read_bytes())
    at = data.index(b"avcC") + 4
    struct.pack_into(">H", data, at + 6, 0xFFFF)  # the length of the sequence parameter set
    path = tmp_path / "damaged.mp4"
    path.write_bytes(data)
    with pytest.raises(NotVideo):
        packets_of(path)


def test_a_packet_that_is_not_of_its_codec_costs_no_other(tmp_path: Path, clip: ClipCache):
    path = tmp_path / "damaged.mp4"
    source = clip(".mp4", **CLIP)
    data = bytearray(source.read_bytes())
    with av.open(str(source)) as container:
        fourth = [packet.pos for packet in container.demux(video=0) if packet.size][3]
    struct.pack_into(">I", data, fourth, 0x7FFFFFFF)  # the length of its NAL unit
    path.write_bytes(data)
    info, packets = packets_of(path)
    assert [packet.token for packet in packets] == list(range(len(packets)))
    assert len(packets) >= FRAMES - 1
    assert seen(info, [packet for packet in packets if packet.pts >= 6 * 512]) == ALL[6:]
