"""What every source promises, see streamd/sources/base.py: one suite over files, RTSP and HTTP."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.clips import ClipCache, Marker
from support.frames import seen
from support.http import HttpServer
from support.rtsp import RtspServer

from streamd.config.types import CameraConfig
from streamd.errors import Disconnected
from streamd.sources import of_camera
from streamd.sources.base import Source
from streamd.types import Packet, StreamInfo

FRAMES = 20
CAMERA = 9
CLIP = {"frames": FRAMES, "gop": 10, "camera": CAMERA}
H264, H264_B = {"codec": "h264"}, {"codec": "h264", "b_frames": 2}
HEVC_B = {"codec": "hevc", "b_frames": 2}


@dataclass(frozen=True, slots=True)
class Given:
    """A stream to read, and what is known of it."""

    camera: CameraConfig
    codec: str

    def source(self) -> Source:
        return of_camera(self.camera)


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Callable[[str, Path], dict[str, object]]:
    """What a camera's configuration says of a clip that is a file, or is served in one of the ways below."""

    def configuration(how: str, path: Path) -> dict[str, object]:
        if how == "file":
            return {"url": str(path)}
        if how.startswith("rtsp"):
            rtsp: RtspServer = request.getfixturevalue("rtsp_server")
            transport = how.removeprefix("rtsp-")
            rtsp.add("/door", path, speed=8 if transport == "udp" else 0, loop=False, username="viewer", password="p@ss")
            return {"url": rtsp.url("/door"), "transport": transport, "username": "viewer", "password": "p@ss"}
        http: HttpServer = request.getfixturevalue("http_server")
        if how == "http-basic":
            url = http.add("/door", path, username="viewer", password="p@ss")
            return {"url": url, "username": "viewer", "password": "p@ss"}
        return {"url": http.add("/door", path)}

    return configuration


CASES = [
    ("file", ".mp4", H264_B),
    ("file", ".mp4", HEVC_B),
    ("file", ".mkv", HEVC_B),
    ("file", ".mkv", {"codec": "av1"}),
    ("file", ".ts", H264_B),
    ("file", ".ts", {"codec": "mpeg2video", "b_frames": 2}),
    ("file", ".avi", H264),
    ("file", ".avi", {"codec": "mpeg4"}),
    ("file", ".webm", {"codec": "vp9"}),
    ("file", ".mov", H264_B),
    ("file", ".mov", {"codec": "mjpeg"}),
    ("file", ".flv", H264),
    ("file", ".h264", H264_B),
    ("file", ".hevc", HEVC_B),
    ("rtsp-tcp", ".mp4", H264_B),
    ("rtsp-tcp", ".ts", HEVC_B),
    ("rtsp-udp", ".mp4", H264),
    ("rtsp-udp", ".ts", HEVC_B),
    ("http", ".ts", H264_B),
    ("http", ".mp4", H264_B),
    ("http", ".mkv", HEVC_B),
    ("http-basic", ".ts", H264),
]


@pytest.fixture(params=CASES, ids=lambda case: "-".join((case[0], case[2]["codec"], case[1])))
def given(request: pytest.FixtureRequest, clip: ClipCache, serve: Callable[[str, Path], dict[str, object]]) -> Given:
    how, suffix, parameters = request.param
    path = clip(suffix, **parameters, **CLIP)
    timeouts = {"connect_timeout": 5, "silence_timeout": 5}
    return Given(CameraConfig(**serve(how, path), **timeouts), parameters["codec"])


def read(given: Given) -> tuple[StreamInfo, list[Packet]]:
    """All packets, to the end."""
    source = given.source()
    packets: list[Packet] = []
    try:
        info = source.open()
        try:
            packets += source.packets()
        except Disconnected:
            assert given.camera.is_live
        else:
            assert not given.camera.is_live, "a live stream's end is an error"
    finally:
        source.close()
    return info, packets


def test_the_stream_is_described_and_every_frame_of_it_arrives_once(given: Given):
    info, packets = read(given)
    assert (info.codec, info.width, info.height) == (given.codec, 320, 240)
    assert info.time_base > 0
    assert info.frame_rate is None or 24 < info.frame_rate < 26
    assert [packet.token for packet in packets] == list(range(FRAMES))
    assert packets[0].is_keyframe
    assert sum(packet.is_keyframe for packet in packets) == (FRAMES if given.codec == "mjpeg" else 2)
    assert not any(packet.is_corrupt or packet.is_discard for packet in packets)
    received = [packet.received_ns for packet in packets]
    assert received == sorted(received)
    if given.codec in {"h264", "hevc"}:
        assert all(data.startswith((b"\0\0\1", b"\0\0\0\1")) for data in [info.extradata, *(packet.data for packet in packets)])
    stamps = [packet.pts for packet in packets if packet.pts is not None]
    assert len(set(stamps)) == len(stamps)
    assert seen(info, packets) == [Marker(CAMERA, number) for number in range(FRAMES)]


def test_it_can_be_closed_in_any_state_and_again(given: Given):
    unopened = given.source()
    unopened.close()
    unopened.close()
    opened = given.source()
    opened.open()
    opened.close()
    opened.close()
    reading = given.source()
    reading.open()
    assert next(reading.packets()).token == 0
    reading.close()
    reading.close()


def test_an_endless_http_stream_goes_on_until_its_server_is_gone(http_server: HttpServer, clip: ClipCache):
    url = http_server.add("/live", clip(".ts", **CLIP), endless=True)
    source = of_camera(CameraConfig(url=url))
    try:
        info = source.open()
        arriving = source.packets()
        packets = list(itertools.islice(arriving, 3 * FRAMES))
        assert [packet.token for packet in packets] == list(range(3 * FRAMES))
        assert seen(info, packets)[: 2 * FRAMES] == [Marker(CAMERA, number) for number in range(FRAMES)] * 2
        http_server.stop()
        with pytest.raises(Disconnected):
            list(arriving)
    finally:
        source.close()
