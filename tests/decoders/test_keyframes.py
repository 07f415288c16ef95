"""Many cameras' key frames through shared sessions: whose picture it is, is read from its pixels."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.bench import Bench, Shot
from support.clips import ClipCache, Marker
from support.frames import packets_of

from streamd.decoders import keyframes
from streamd.decoders.base import Decoder
from streamd.decoders.bitstream import nal_units, parameter_sets
from streamd.decoders.keyframes import KeyframeDecoder, KeyframeDecoders
from streamd.errors import DecodeError
from streamd.types import Packet, StreamInfo

KINDS = [
    {"codec": "h264", "size": (320, 240)},
    {"codec": "h264", "size": (320, 240), "encoder_options": {"profile": "baseline"}},
    {"codec": "h264", "size": (320, 240), "b_frames": 2},
    {"codec": "h264", "size": (322, 242)},
    {"codec": "h264", "size": (640, 266)},
    {"codec": "h264", "size": (640, 264)},
    {"codec": "hevc", "size": (320, 240)},
    {"codec": "hevc", "size": (320, 240), "b_frames": 2},
    {"codec": "hevc", "size": (322, 242), "pixel_format": "yuv420p10le"},
]
CAMERAS = 2 * len(KINDS)
FRAMES, GOP = 12, 4


@dataclass(slots=True)
class Camera:
    """One of many; `keys` are its key frames."""

    number: int
    info: StreamInfo
    keys: list[Packet]

    @property
    def markers(self) -> list[Marker]:
        return [Marker(self.number, frame) for frame in range(0, FRAMES, GOP)]


@pytest.fixture
def cameras(clip: ClipCache) -> list[Camera]:
    made = []
    for number in range(CAMERAS):
        kind = KINDS[number % len(KINDS)]
        info, packets = packets_of(clip((".mp4", ".ts")[number // len(KINDS)], camera=number, frames=FRAMES, gop=GOP, **kind))
        made.append(Camera(number, info, [packet for packet in packets if packet.is_keyframe]))
    return made


@pytest.fixture
def shared() -> KeyframeDecoders:
    return KeyframeDecoders()


def decoder(shared: KeyframeDecoders, bench: Bench, info: StreamInfo) -> KeyframeDecoder:
    return shared.decoder(bench.name, info, bench.decoder)


def played(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera], order: list[int]) -> dict[int, list[Shot]]:
    """The pictures of each camera, when their key frames come in `order`, a number of a camera each."""
    decoders = {camera.number: decoder(shared, bench, camera.info) for camera in cameras}
    waiting = {camera.number: list(camera.keys) for camera in cameras}
    shots: dict[int, list[Shot]] = {camera.number: [] for camera in cameras}
    for number in order:
        packet = waiting[number].pop(0)
        for shot in bench.fed(decoders[number], packet):
            assert shot.token == packet.token
            shots[number].append(shot)
    return shots


def test_each_picture_is_its_own_cameras_at_once_and_whole(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera]):
    order = [camera.number for camera in cameras for _ in camera.keys]
    random.Random(7).shuffle(order)
    shots = played(bench, shared, cameras, order)
    for camera in cameras:
        own = shots[camera.number]
        assert [shot.marker for shot in own] == camera.markers
        assert {shot.size for shot in own} == {(camera.info.width, camera.info.height)}
    assert 0 < len(shared) <= len(KINDS)


def test_pictures_are_those_of_a_decoder_of_its_own(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera]):
    order = [camera.number for camera in cameras for _ in camera.keys]
    random.Random(8).shuffle(order)
    shots = played(bench, shared, cameras, order)
    for camera in cameras:
        alone = bench.decoded(replace(camera.info, reorder_frames=0), camera.keys[:1])
        for mine, expected in zip(shots[camera.number][0].planes, alone[0].planes, strict=True):
            assert (mine == expected).all()


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_in_whatever_order_they_come(bench: Bench, cameras: list[Camera], data: st.DataObject):
    order = data.draw(st.permutations([camera.number for camera in cameras for _ in camera.keys]))
    shots = played(bench, KeyframeDecoders(), cameras, order)
    assert {number: [shot.marker for shot in own] for number, own in shots.items()} == {camera.number: camera.markers for camera in cameras}


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_parameter_sets_may_come_in_the_description_only(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera], codec: str):
    for camera in (camera for camera in cameras if camera.info.codec == codec):
        sets = parameter_sets(codec, camera.keys[0].data) or camera.info.extradata
        bare = [replace(packet, data=without_sets(codec, packet.data)) for packet in camera.keys]
        own = decoder(shared, bench, replace(camera.info, extradata=sets))
        assert [shot.marker for packet in bare for shot in bench.fed(own, packet)] == camera.markers


def without_sets(codec: str, data: bytes) -> bytes:
    sets = set(nal_units(parameter_sets(codec, data)))
    return b"".join(b"\0\0\0\1" + unit for unit in nal_units(data) if unit not in sets)


def test_a_camera_that_changes_its_size_gets_another_session(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera]):
    small, large = cameras[0], cameras[4]
    own = decoder(shared, bench, small.info)
    keys = [replace(large.keys[0], data=large.info.extradata + large.keys[0].data)] if large.info.extradata else large.keys[:1]
    sizes = [shot.size for packet in (small.keys[0], *keys, small.keys[1]) for shot in bench.fed(own, packet)]
    assert sizes == [(320, 240), (640, 266), (320, 240)]


def test_a_damaged_key_frame_costs_the_other_cameras_nothing(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera]):
    bad, good = cameras[0], cameras[len(KINDS)]
    assert bad.info.width == good.info.width
    damaged = decoder(shared, bench, bad.info)
    healthy = decoder(shared, bench, good.info)
    assert [shot.marker for shot in bench.fed(healthy, good.keys[0])] == good.markers[:1]
    data = bad.keys[1].data
    for broken in (data[: len(data) // 8], data[:60] + bytes(len(data) - 60), b"\0\0\0\1\x65" + b"\xff" * 50):
        try:
            shots = bench.fed(damaged, replace(bad.keys[1], data=broken))
        except DecodeError:
            continue
        assert all(shot.marker is None or shot.marker.camera == bad.number for shot in shots)
    assert [shot.marker for packet in good.keys[1:] for shot in bench.fed(healthy, packet)] == good.markers[1:]


def test_only_so_many_sessions_stay(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera], monkeypatch):
    monkeypatch.setattr(keyframes, "_SESSIONS", 2)
    shots = played(bench, shared, cameras, [camera.number for _ in range(3) for camera in cameras])
    assert {number: [shot.marker for shot in own] for number, own in shots.items()} == {camera.number: camera.markers for camera in cameras}
    assert len(shared) == 2


class Scripted:
    """A session that answers as it is told: stamps relative to the packet's."""

    name = "cpu"

    def __init__(self, answers: list[list[int]]) -> None:
        self.answers = answers
        self.is_closed = False

    def decode(self, packet: Packet) -> list[object]:
        return [replace(FRAME, token=packet.token + offset) for offset in self.answers.pop(0)]

    def drain(self) -> list[object]:
        return []

    def reassign(self, info: StreamInfo) -> None:
        pass

    def restart(self) -> bool:
        return True

    def close(self) -> None:
        self.is_closed = True


@dataclass(frozen=True, slots=True)
class Stamped:
    token: int


FRAME = Stamped(0)


@pytest.mark.parametrize(("answer", "tokens"), [([-1], []), ([-1, 0], [77]), ([0, 1], [77]), ([], [])])
def test_a_picture_with_another_stamp_is_not_taken_and_its_session_not_used_again(shared, cameras, answer, tokens):
    sessions = []

    def create(info: StreamInfo) -> Scripted:
        sessions.append(Scripted([[0], answer, [0]]))
        return sessions[-1]

    camera = cameras[0]
    own = shared.decoder("cpu", camera.info, create)
    assert [frame.token for frame in own.decode(replace(camera.keys[0], token=5))] == [5]
    assert [frame.token for frame in own.decode(replace(camera.keys[0], token=77))] == tokens
    assert [frame.token for frame in own.decode(replace(camera.keys[0], token=78))] == [78]
    assert [session.is_closed for session in sessions] == [True, False]


TAGS = [{}, {"matrix": "bt709", "full_range": True}, {"matrix": "bt2020nc"}, {"full_range": True}]


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_camera_without_colour_tags_does_not_get_another_ones(bench: Bench, shared: KeyframeDecoders, clip: ClipCache, codec: str):
    streams = [packets_of(clip(".ts", codec=codec, frames=4, gop=4, **tags)) for tags in TAGS]
    alone = [bench.decoded(info, packets[:1])[0].frame for info, packets in streams]
    assert len({(frame.matrix, frame.full_range) for frame in alone}) == len(TAGS)
    decoders = [decoder(shared, bench, info) for info, _ in streams]
    for number in random.Random(2).choices(range(len(TAGS)), k=30):
        (shot,) = bench.fed(decoders[number], streams[number][1][0])
        assert (shot.frame.matrix, shot.frame.full_range) == (alone[number].matrix, alone[number].full_range)
    assert len(shared) == 1


def test_predicted_pictures_refer_to_their_own_cameras_only(bench: Bench, shared: KeyframeDecoders, clip: ClipCache, cameras: list[Camera]):
    """With periodic intra refresh later "key frames" are predicted: in a shared session from the last camera's picture."""
    info, packets = packets_of(clip(".ts", frames=24, gop=12, camera=99, encoder_options={"x264-params": "intra-refresh=1:keyint=12"}))
    keys = [packet for packet in packets if packet.is_keyframe]
    alone = bench.decoded(replace(info, reorder_frames=0), keys[1:2])
    created: list[StreamInfo] = []

    def create(described: StreamInfo) -> Decoder:
        created.append(described)
        return bench.decoder(described)

    other, own = (shared.decoder(bench.name, each, create) for each in (cameras[0].info, info))
    assert [shot.marker for shot in bench.fed(own, keys[0])] == [Marker(99, 0)]
    assert [shot.marker for shot in bench.fed(other, cameras[0].keys[0])] == cameras[0].markers[:1]
    assert len(created) == 1
    seen = bench.fed(own, keys[1])
    assert len(created) == 2
    assert len(seen) == len(alone)
    for shot, expected in zip(seen, alone, strict=True):
        assert all((mine == its).all() for mine, its in zip(shot.planes, expected.planes, strict=True))


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_an_open_gop_is_no_reason_for_another_session(bench: Bench, shared: KeyframeDecoders, clip: ClipCache, codec: str):
    options = {
        "h264": {"x264-params": "open-gop=1:keyint=12:min-keyint=1:scenecut=0:bframes=2:b-adapt=0"},
        "hevc": {"x265-params": "log-level=none:pools=none:open-gop=1:keyint=12:min-keyint=1:scenecut=0:bframes=2:b-adapt=0"},
    }[codec]
    streams = [packets_of(clip(".ts", codec=codec, frames=36, gop=12, camera=n, b_frames=2, encoder_options=options)) for n in (1, 2, 3)]
    decoders = [decoder(shared, bench, info) for info, _ in streams]
    keys = [[packet for packet in packets if packet.is_keyframe] for _, packets in streams]
    assert {len(own) for own in keys} == {3}
    for turn in range(3):
        for number in (0, 1, 2):
            shots = bench.fed(decoders[number], keys[number][turn])
            assert [shot.marker for shot in shots] == [Marker(number + 1, 12 * turn)]
    assert len(shared) == 1


@pytest.mark.parametrize("kept", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_truncated_key_frame_shows_nothing_of_other_cameras(bench: Bench, shared: KeyframeDecoders, clip: ClipCache, codec, kept):
    """What the decoder puts into the hole is the same when no other camera was there before."""
    streams = [packets_of(clip(".ts", codec=codec, frames=8, gop=4, camera=camera)) for camera in (0x0F, 0xF0)]
    (_, others), (info, packets) = streams
    broken = replace(packets[0], data=packets[0].data[: int(len(packets[0].data) * kept)])

    def seen(shared: KeyframeDecoders, before: list[Packet]) -> list[Shot]:
        first, own = decoder(shared, bench, streams[0][0]), decoder(shared, bench, info)
        for packet in before:
            assert [shot.marker.camera for shot in bench.fed(first, packet) if shot.marker] == [0x0F]
        try:
            return bench.fed(own, broken)
        except DecodeError:
            return []

    shots = seen(shared, [others[0], others[4], others[0]])
    alone = seen(KeyframeDecoders(), [])
    assert len(shots) == len(alone)
    for shot, expected in zip(shots, alone, strict=True):
        assert shot.marker is None or shot.marker.camera == 0xF0
        if (bench.name, codec) == ("nvdec", "hevc"):
            continue  # NVDEC leaves in the hole what its surface held before: known, and told in keyframes.py
        assert all((mine == its).all() for mine, its in zip(shot.planes, expected.planes, strict=True))


def test_a_key_frame_that_was_damaged_on_its_way_is_not_decoded(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera]):
    own = decoder(shared, bench, cameras[0].info)
    with pytest.raises(DecodeError, match="a key frame of h264 was damaged on its way"):
        own.decode(replace(cameras[0].keys[0], is_corrupt=True))


def test_the_sessions_go_with_the_last_camera(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera]):
    first, second = (decoder(shared, bench, camera.info) for camera in (cameras[0], cameras[len(KINDS)]))
    bench.fed(first, cameras[0].keys[0])
    bench.fed(second, cameras[len(KINDS)].keys[0])
    first.close()
    first.close()
    assert len(shared) == 1
    second.close()
    assert len(shared) == 0


def test_a_session_that_is_not_used_for_long_is_closed(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera], monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(keyframes.time, "monotonic", lambda: now_s)
    h264, hevc = (decoder(shared, bench, camera.info) for camera in (cameras[0], cameras[6]))
    bench.fed(h264, cameras[0].keys[0])
    for now_s in (1.0, 59.0, 61.5):
        assert len(bench.fed(hevc, cameras[6].keys[0])) == 1
        assert len(shared) == (1 if now_s > 60 else 2)


def test_each_thread_has_sessions_of_its_own(bench: Bench, shared: KeyframeDecoders, cameras: list[Camera]):
    here = decoder(shared, bench, cameras[0].info)
    bench.fed(here, cameras[0].keys[0])
    with ThreadPoolExecutor(1) as thread:
        there = thread.submit(decoder, shared, bench, cameras[0].info).result()
        shots = thread.submit(bench.fed, there, cameras[0].keys[0]).result()
        assert [shot.marker for shot in shots] == cameras[0].markers[:1]
        assert len(shared) == 2
        thread.submit(there.close).result()
    assert len(shared) == 1
