"""What every decoder promises, see streamd/decoders/base.py. The CPU's runs everywhere, the GPU's where there is one."""

import random
from dataclasses import replace

import pytest
from support.bench import Bench, Shot
from support.clips import ClipCache, Marker
from support.frames import joined, packets_of

from streamd.decoders.bitstream import nal_units
from streamd.errors import DecodeError
from streamd.types import Matrix, Packet, StreamInfo

FRAMES = 20
CAMERA = 5
CLIP = {"frames": FRAMES, "gop": 10, "camera": CAMERA}
H264 = {"codec": "h264"}
H264_B = {"codec": "h264", "b_frames": 2}
HEVC_B = {"codec": "hevc", "b_frames": 2}
STREAMS = [
    (".mp4", H264),
    (".mp4", H264_B),
    (".ts", H264_B),
    (".mkv", {"codec": "hevc"}),
    (".mp4", HEVC_B),
    (".ts", HEVC_B | {"pixel_format": "yuv420p10le"}),
    (".webm", {"codec": "vp9"}),
    (".webm", {"codec": "vp8"}),
    (".ts", {"codec": "mpeg2video"}),
    (".ts", {"codec": "mpeg2video", "b_frames": 2}),
]
OPEN_GOP = {
    "h264": {"x264-params": "open-gop=1:keyint=12:min-keyint=1:scenecut=0:bframes=2:b-adapt=0"},
    "hevc": {"x265-params": "log-level=none:pools=none:open-gop=1:keyint=12:min-keyint=1:scenecut=0:bframes=2:b-adapt=0"},
}


def display_order(packets: list[Packet]) -> dict[int, int]:
    """By token: which picture of the stream, from 0, a packet holds."""
    by_time = sorted(packets, key=lambda packet: packet.token if packet.pts is None else packet.pts)
    return {packet.token: number for number, packet in enumerate(by_time)}


def numbers(shots: list[Shot]) -> list[int | None]:
    return [shot.marker.frame if shot.marker else None for shot in shots]


@pytest.fixture(params=STREAMS, ids=lambda stream: "-".join(map(str, (*stream[1].values(), stream[0]))))
def stream(request: pytest.FixtureRequest, clip: ClipCache) -> tuple[StreamInfo, list[Packet]]:
    suffix, parameters = request.param
    return packets_of(clip(suffix, **parameters, **CLIP))


def test_every_frame_comes_once_in_display_order_with_the_token_of_its_packet(bench: Bench, stream):
    info, packets = stream
    shots = bench.decoded(info, packets)
    assert [shot.marker for shot in shots] == [Marker(CAMERA, number) for number in range(FRAMES)]
    order = display_order(packets)
    assert [order[shot.token] for shot in shots] == list(range(FRAMES))
    assert {shot.size for shot in shots} == {(320, 240)}
    assert {shot.planes[1].shape for shot in shots} == {shot.planes[2].shape for shot in shots} == {(120, 160)}
    depth = 10 if info.pixel_format == "yuv420p10le" else 8
    assert {shot.frame.bit_depth for shot in shots} == {depth}
    assert 1 << (depth - 1) < max(int(shot.planes[0].max()) for shot in shots) < 1 << depth


def test_what_is_held_back_comes_with_the_drain(bench: Bench, clip: ClipCache):
    for parameters in (H264_B, HEVC_B):
        info, packets = packets_of(clip(".mp4", **parameters, **CLIP))
        decoder = bench.decoder(info)
        early = [shot for packet in packets for shot in bench.fed(decoder, packet)]
        late = bench.drained(decoder)
        assert late
        assert numbers(early + late) == list(range(FRAMES))


@pytest.mark.parametrize("codec", ["h264", "hevc", "vp9"])
def test_without_b_frames_each_frame_comes_with_its_packet(bench: Bench, clip: ClipCache, codec):
    info, packets = packets_of(clip(".mkv", codec=codec, **CLIP))
    assert info.reorder_frames == 0
    decoder = bench.decoder(info)
    assert [numbers(bench.fed(decoder, packet)) for packet in packets] == [[number] for number in range(FRAMES)]
    assert bench.drained(decoder) == []


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_parameter_sets_may_be_in_the_extradata_only_or_in_the_packets_only(bench: Bench, clip: ClipCache, codec):
    info, packets = packets_of(clip(".ts", codec=codec, **CLIP))
    assert numbers(bench.decoded(replace(info, extradata=b""), packets)) == list(range(FRAMES))
    bare = [replace(packet, data=without_parameter_sets(codec, packet.data)) for packet in packets]
    assert len(bare[0].data) < len(packets[0].data)
    assert numbers(bench.decoded(info, bare)) == list(range(FRAMES))


def without_parameter_sets(codec: str, data: bytes) -> bytes:
    def is_set(unit: bytes) -> bool:
        return unit[0] & 0x1F in {7, 8} if codec == "h264" else unit[0] >> 1 & 0x3F in {32, 33, 34}

    return b"".join(b"\0\0\0\1" + unit for unit in nal_units(data) if not is_set(unit))


@pytest.mark.parametrize(("suffix", "parameters"), [(".mp4", H264), (".ts", H264_B), (".ts", HEVC_B), (".webm", {"codec": "vp9"})], ids=str)
def test_a_stream_that_starts_in_mid_gop_is_right_from_its_first_key_frame_on(bench: Bench, clip: ClipCache, suffix, parameters):
    info, packets = packets_of(clip(suffix, **parameters, **CLIP))
    key = next(packet.token for packet in packets[3:] if packet.is_keyframe)
    assert key == 10
    shots = decoded_after_faults(bench, info, packets[3:])
    assert numbers([shot for shot in shots if shot.token >= key]) == list(range(10, FRAMES))


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_stream_that_starts_at_an_open_gop_is_right_from_its_key_frame_on(bench: Bench, clip: ClipCache, codec):
    """HEVC: a CRA picture. Pictures that lead it refer to frames that never came; a camera drops them by their time."""
    info, packets = packets_of(clip(".ts", codec=codec, frames=30, gop=12, b_frames=2, encoder_options=OPEN_GOP[codec]))
    key = next(packet for packet in packets[1:] if packet.is_keyframe)
    leading = [packet for packet in packets[key.token :] if packet.pts < key.pts]
    assert leading, "the clip has an open GOP"
    shown = [packet.token for packet in packets[key.token :] if packet.pts >= key.pts]
    shots = [shot for shot in bench.decoded(info, packets[key.token :]) if shot.token in shown]
    order = display_order(packets)
    assert numbers(shots) == [order[shot.token] for shot in shots] == list(range(12, 30))


def decoded_after_faults(bench: Bench, info: StreamInfo, packets: list[Packet]) -> list[Shot]:
    """As a camera does it: a decoder that raised is thrown away, and the next key frame gets a new one."""
    shots: list[Shot] = []
    decoder = bench.decoder(info)
    failed = False
    for packet in packets:
        if failed and not packet.is_keyframe:
            continue
        if failed:
            decoder, failed = bench.decoder(info), False
        try:
            shots += bench.fed(decoder, packet)
        except DecodeError:
            decoder.close()
            failed = True
    return shots if failed else shots + bench.drained(decoder)


SIZES = [
    ("h264", (320, 240), (640, 480)),
    ("h264", (640, 480), (320, 240)),
    ("h264", (1280, 532), (1280, 530)),
    ("h264", (1280, 530), (1280, 532)),
    ("hevc", (320, 240), (640, 360)),
    ("hevc", (640, 360), (320, 240)),
]


@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_size_that_changes_in_mid_stream_costs_no_frame(bench: Bench, clip: ClipCache, sizes, b_frames):
    codec, first, second = sizes

    def of_size(size):
        return packets_of(clip(".ts", codec=codec, frames=6, gop=6, camera=size[1] % 256, size=size, b_frames=b_frames))

    info, before = of_size(first)
    _, after = of_size(second)
    shots = bench.decoded(info, joined(before, after))
    assert [shot.size for shot in shots] == [first] * 6 + [second] * 6
    assert [shot.planes[1].shape[::-1] for shot in shots] == [(size[0] // 2, size[1] // 2) for size in [first] * 6 + [second] * 6]
    assert [shot.marker for shot in shots] == [Marker(size[1] % 256, number) for size in (first, second) for number in range(6)]


@pytest.mark.parametrize(
    ("suffix", "parameters", "chroma"),
    [
        (".webm", {"codec": "vp9"}, (161, 121)),
        (".ts", {"codec": "mpeg2video"}, (161, 121)),
        (".mkv", {"codec": "hevc", "pixel_format": "yuv444p"}, (321, 241)),
    ],
    ids=str,
)
def test_odd_sizes_are_kept(bench: Bench, clip: ClipCache, suffix, parameters, chroma):
    shots = bench.decoded(*packets_of(clip(suffix, **parameters, frames=4, gop=4, size=(321, 241))))
    assert [(shot.size, shot.planes[1].shape[::-1], shot.planes[2].shape[::-1]) for shot in shots] == [((321, 241), chroma, chroma)] * 4
    assert numbers(shots) == [0, 1, 2, 3]


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_what_the_stream_crops_away_is_not_shown(bench: Bench, clip: ClipCache, codec):
    """1080 lines are coded as 1088."""
    shots = bench.decoded(*packets_of(clip(".mkv", codec=codec, frames=2, size=(1920, 1080))))
    assert [(shot.size, shot.planes[1].shape) for shot in shots] == [((1920, 1080), (540, 960))] * 2
    assert numbers(shots) == [0, 1]


@pytest.mark.parametrize("depth", ["yuv420p", "yuv420p10le"])
def test_frames_stay_as_they_are_until_the_next_call_whatever_others_decode(bench: Bench, clip: ClipCache, depth):
    """Two cameras in turns on one stream: no frame ever shows the other camera, or another moment."""
    clips = [packets_of(clip(".mkv", codec="hevc", frames=10, gop=5, camera=camera, pixel_format=depth)) for camera in (1, 2, 3)]
    decoders = [bench.decoder(info) for info, _ in clips]
    for turn in zip(*(packets for _, packets in clips), strict=True):
        frames = [bench.frames(decoder, packet) for decoder, packet in zip(decoders, turn, strict=True)]
        for _ in range(2):
            shots = [bench.shot(frame) for given in frames for frame in given]
            assert [shot.marker for shot in shots] == [Marker(camera, turn[0].token) for camera in (1, 2, 3)]


@pytest.mark.parametrize(
    ("height", "tags", "shown"),
    [
        (240, {}, (Matrix.BT601, False)),
        (720, {}, (Matrix.BT709, False)),
        (240, {"matrix": "bt709"}, (Matrix.BT709, False)),
        (720, {"matrix": "smpte170m"}, (Matrix.BT601, False)),
        (240, {"full_range": True}, (Matrix.BT601, True)),
        (240, {"matrix": "bt709", "full_range": True}, (Matrix.BT709, True)),
        (240, {"matrix": "bt2020nc"}, (Matrix.BT2020, False)),
        (240, {"matrix": "smpte240m"}, (Matrix.SMPTE240M, False)),
    ],
    ids=str,
)
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_the_colours_are_those_of_the_tags_and_else_of_the_size(bench: Bench, clip: ClipCache, codec, height, tags, shown):  # noqa: PLR0917
    (shot,) = bench.decoded(*packets_of(clip(".mp4", codec=codec, frames=1, size=(320, height), **tags)))
    assert (shot.frame.matrix, shot.frame.full_range) == shown


def test_the_rotation_is_handed_on(bench: Bench, clip: ClipCache):
    info, packets = packets_of(clip(".mp4", **CLIP))
    assert {shot.frame.rotation_deg for shot in bench.decoded(replace(info, rotation_deg=90), packets)} == {90}


def test_it_can_be_closed_in_any_state_and_again(bench: Bench, clip: ClipCache):
    info, packets = packets_of(clip(".mp4", **H264_B, **CLIP))
    unused, half, drained = (bench.decoder(info) for _ in range(3))
    bench.fed(half, packets[0])
    bench.fed(drained, packets[0])
    bench.drained(drained)
    for decoder in (unused, half, drained):
        decoder.close()
        decoder.close()


def test_a_decoder_that_saw_nothing_holds_nothing_back(bench: Bench, clip: ClipCache):
    info, _ = packets_of(clip(".mp4", **CLIP))
    assert bench.drained(bench.decoder(info)) == []


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_garbage_is_rejected_or_gives_no_frame_and_the_next_key_frame_is_right(bench: Bench, clip: ClipCache, codec):
    info, packets = packets_of(clip(".ts", codec=codec, **CLIP))
    noise = random.Random(3)
    spoilt = [replace(packet, data=noise.randbytes(len(packet.data))) if packet.token < 10 else packet for packet in packets]
    shots = decoded_after_faults(bench, info, spoilt)
    assert numbers(shots) == list(range(10, FRAMES))
    assert [shot.token for shot in shots] == list(range(10, FRAMES))


def test_packets_without_time_stamps_keep_their_order(bench: Bench, clip: ClipCache):
    """An elementary stream has none; an RTSP stream's first packet has none."""
    info, packets = packets_of(clip(".h264", **CLIP))
    assert numbers(bench.decoded(info, packets)) == list(range(FRAMES))
    info, packets = packets_of(clip(".ts", **H264_B, **CLIP))
    first, *others = packets
    begin = min(packet.pts for packet in packets)
    late = [replace(first, pts=None, dts=None), *(replace(packet, pts=packet.pts - begin) for packet in others)]
    shots = bench.decoded(info, late)
    assert numbers(shots) == list(range(FRAMES))
    order = display_order(packets)
    assert [order[shot.token] for shot in shots] == list(range(FRAMES))


def test_over_many_gops_each_frame_still_finds_its_own_packet(bench: Bench, clip: ClipCache):
    info, packets = packets_of(clip(".ts", **H264_B, **CLIP))
    rounds = joined(*[packets] * 6)
    shots = bench.decoded(info, rounds)
    order = display_order(rounds)
    assert [order[shot.token] for shot in shots] == list(range(6 * FRAMES))
    assert numbers(shots) == [number % FRAMES for number in range(6 * FRAMES)]
