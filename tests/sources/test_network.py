"""RTSP and HTTP sources against real servers with real faults. FFmpeg ignores options that it does not know: these show ours at work."""

import contextlib
import itertools
import socket
import time
import traceback
from pathlib import Path

import pytest
from support.clips import ClipCache, Marker
from support.frames import seen
from support.http import HttpServer
from support.rtsp import RtspServer
from support.wait import wait_until

from streamd.config.types import CameraConfig
from streamd.errors import Disconnected, NotFound, NotVideo, SourceError, SourceTimeout, Unauthorized, Unreachable
from streamd.sources import network
from streamd.sources.demux import Demuxer
from streamd.types import Packet

FRAMES = 20
DEADLINE_S = 0.3
LATE_S = 0.35
"""FFmpeg looks at its deadlines every 100 ms; the machine may be busy."""
PASSWORDS = ["p@ss", "p#ss", "p/ss", "p?ss", "p%ss", "p:ss", "p ss", "pés", "p&ss", "%41", "a+b=c", '"quo\'ted"', "[x]", "@:/?#%20é &"]


@pytest.fixture
def camera(clip: ClipCache) -> Path:
    return clip(".mp4", frames=FRAMES, gop=10, camera=3)


def rtsp(url: str, *, deadline_s: float = 5.0, transport: str = "tcp", username: str | None = None, password: str | None = None) -> Demuxer:
    keys = {"url": url, "transport": transport, "username": username, "password": password}
    return network.of_camera(CameraConfig.model_validate(keys | {"connect_timeout": deadline_s, "silence_timeout": deadline_s}))


http = rtsp


def fails(source: Demuxer, *, into: list[Packet] | None = None) -> SourceError:
    """The error of opening and reading `source` to its end; the packets before it are put into `into`."""
    try:
        source.open()
        for packet in source.packets():
            if into is not None:
                into.append(packet)
    except SourceError as error:
        return error
    finally:
        source.close()
    pytest.fail("a live stream ended without an error")


# --- RTSP: what is wrong with it


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize(
    ("fault", "error"),
    [({"not_found": True}, NotFound), ({"unauthorized": True}, Unauthorized), ({"forbidden": True}, Unauthorized)],
    ids=["404", "401", "403"],
)
def test_what_an_rtsp_server_answers_is_told(rtsp_server: RtspServer, camera, fault, error, transport):
    path = rtsp_server.add("/door", camera, **fault)
    assert type(fails(rtsp(rtsp_server.url("/door"), transport=transport, username="viewer", password="geheim"))) is error
    assert path.plays == 0
    assert type(fails(rtsp(rtsp_server.url("/nowhere"), transport=transport))) is NotFound


@pytest.mark.parametrize("scheme", ["rtsp", "http"])
def test_a_closed_port_is_unreachable(scheme):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    source = {"rtsp": rtsp, "http": http}[scheme](f"{scheme}://127.0.0.1:{port}/door")
    assert type(fails(source)) is Unreachable


@pytest.mark.parametrize("scheme", ["rtsp", "http"])
def test_a_host_without_an_address_is_unreachable(scheme):
    source = {"rtsp": rtsp, "http": http}[scheme](f"{scheme}://nobody.invalid/door")
    assert type(fails(source)) is Unreachable


def test_a_silent_server_is_given_up_at_the_deadline(rtsp_server: RtspServer, camera):
    rtsp_server.add("/door", camera, silent=True)
    started_s = time.monotonic()
    assert type(fails(rtsp(rtsp_server.url("/door"), deadline_s=DEADLINE_S))) is SourceTimeout
    assert DEADLINE_S * 0.9 <= time.monotonic() - started_s <= DEADLINE_S + LATE_S


@pytest.mark.parametrize("scheme", ["rtsp", "http"])
def test_a_host_that_takes_connections_and_says_nothing_is_given_up_at_the_deadline(scheme):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/door"
        started_s = time.monotonic()
        assert type(fails({"rtsp": rtsp, "http": http}[scheme](address, deadline_s=DEADLINE_S))) is SourceTimeout
        assert DEADLINE_S * 0.9 <= time.monotonic() - started_s <= DEADLINE_S + LATE_S


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_play_without_rtp_is_given_up_after_at_most_two_deadlines(rtsp_server: RtspServer, camera, transport):
    path = rtsp_server.add("/door", camera, no_rtp=True)
    started_s = time.monotonic()
    assert type(fails(rtsp(rtsp_server.url("/door"), deadline_s=DEADLINE_S, transport=transport))) is SourceTimeout
    assert time.monotonic() - started_s <= 2 * (DEADLINE_S + LATE_S)
    assert path.plays == 1


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_a_stream_that_stalls_is_given_up_at_the_deadline(rtsp_server: RtspServer, camera, transport):
    path = rtsp_server.add("/door", camera, speed=8)
    source = rtsp(rtsp_server.url("/door"), deadline_s=DEADLINE_S, transport=transport)
    try:
        source.open()
        arriving = source.packets()
        last = next(arriving)
        rtsp_server.change("/door", stall_after=path.frames_sent)
        error = None
        try:
            for packet in arriving:
                last = packet
        except SourceError as caught:
            error = caught
    finally:
        source.close()
    assert type(error) is SourceTimeout
    assert "sent nothing for 0.3 s" in str(error)
    assert DEADLINE_S * 0.9 <= time.monotonic() - last.received_ns / 1e9 <= DEADLINE_S + LATE_S


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_a_dropped_connection_is_told_at_once_and_what_came_before_is_kept(rtsp_server: RtspServer, camera, transport):
    rtsp_server.add("/door", camera, speed=8, drop_after=12)
    packets: list[Packet] = []
    error = fails(rtsp(rtsp_server.url("/door"), transport=transport), into=packets)
    assert type(error) is Disconnected
    assert len(packets) == 12


def test_a_killed_server_is_told(rtsp_server: RtspServer, camera):
    rtsp_server.add("/door", camera, speed=8)
    source = rtsp(rtsp_server.url("/door"))
    try:
        source.open()
        arriving = source.packets()
        next(arriving)
        rtsp_server.stop()
        with pytest.raises(Disconnected):
            list(arriving)
    finally:
        source.close()


def test_garbage_gives_no_frame(rtsp_server: RtspServer, camera):
    rtsp_server.add("/door", camera, garbage=True, speed=0, loop=False)
    assert isinstance(fails(rtsp(rtsp_server.url("/door"))), Disconnected)


# --- RTSP: what it must cope with


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("where", ["no_parameter_sets_in_band", "no_parameter_sets_in_sdp"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_parameter_sets_may_come_in_one_place_only(rtsp_server: RtspServer, clip: ClipCache, where, codec, transport):
    path = clip(".mp4", codec=codec, frames=FRAMES, gop=10, camera=3)
    rtsp_server.add("/door", path, **{where: True}, speed=8 if transport == "udp" else 0, loop=False)
    source = rtsp(rtsp_server.url("/door"), transport=transport)
    packets: list[Packet] = []
    try:
        info = source.open()
        with contextlib.suppress(Disconnected):
            packets += source.packets()
    finally:
        source.close()
    assert info.extradata.startswith((b"\0\0\1", b"\0\0\0\1"))
    assert seen(info, packets) == [Marker(3, number) for number in range(FRAMES)]


def test_a_session_is_torn_down_on_close(rtsp_server: RtspServer, camera):
    path = rtsp_server.add("/door", camera, speed=8)
    source = rtsp(rtsp_server.url("/door"))
    source.open()
    list(itertools.islice(source.packets(), 3))
    assert (path.teardowns, path.sessions) == (0, 1)
    source.close()
    source.close()
    wait_until(lambda: path.teardowns == 1 and path.sessions == 0 and rtsp_server.connections == 0, what="the client has left")


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_the_transport_is_the_one_that_was_asked_for(rtsp_server: RtspServer, camera, transport):
    path = rtsp_server.add("/door", camera, speed=8)
    source = rtsp(rtsp_server.url("/door"), transport=transport)
    source.open()
    source.close()
    assert path.transports == {transport: 1}


def test_a_stream_whose_rate_is_unknown_has_none(rtsp_server: RtspServer, camera):
    rtsp_server.add("/door", camera, stall_after=1)
    source = rtsp(rtsp_server.url("/door"), deadline_s=0.2)
    info = source.open()
    source.close()
    assert info.frame_rate is None


# --- credentials


@pytest.mark.parametrize("auth", ["digest", "basic"])
def test_any_password_reaches_an_rtsp_server(rtsp_server: RtspServer, camera, auth):
    for number, password in enumerate(PASSWORDS):
        path = rtsp_server.add(f"/{number}", camera, username="view er@home", password=password, auth=auth, speed=0)
        source = rtsp(rtsp_server.url(f"/{number}"), username="view er@home", password=password)
        try:
            source.open()
        finally:
            source.close()
        assert (path.plays, path.refused) == (1, 0), password


@pytest.mark.parametrize("password", PASSWORDS)
def test_any_password_reaches_an_http_server(http_server: HttpServer, clip: ClipCache, password):
    url = http_server.add("/door", clip(".ts", frames=FRAMES, gop=10), username="view er@home", password=password)
    source = http(url, username="view er@home", password=password)
    source.open()
    source.close()


def test_a_wrong_password_is_refused(rtsp_server: RtspServer, http_server: HttpServer, camera):
    path = rtsp_server.add("/door", camera, username="viewer", password="geheim")
    url = http_server.add("/door", camera, username="viewer", password="geheim")
    for username, password in (("viewer", "falsch"), ("viewer", ""), ("viewer", None), ("", "geheim"), (None, None)):
        assert type(fails(rtsp(rtsp_server.url("/door"), username=username, password=password))) is Unauthorized
        assert type(fails(http(url, username=username, password=password))) is Unauthorized
    assert path.plays == 0


def test_no_error_holds_the_password(rtsp_server: RtspServer, http_server: HttpServer, camera):
    """Neither in its text nor in the traceback that a log would show."""
    credentials = {"username": "viewer", "password": "ge@heim/geheim"}
    faults: list[dict[str, object]] = [{}, {"status": 502}, {"status": 404}, {"status": 401}, {"silent": True}]
    sources = [http(http_server.add(f"/{n}", b"no video" * 100, **fault), deadline_s=0.2, **credentials) for n, fault in enumerate(faults)]
    faults = [{name: True} for name in ("not_found", "unauthorized", "forbidden", "silent", "no_rtp", "garbage")]
    for number, fault in enumerate([*faults, {"drop_after": 2, "speed": 8}]):
        rtsp_server.add(f"/{number}", camera, **{"loop": False, "speed": 0} | fault)
        sources.append(rtsp(rtsp_server.url(f"/{number}"), deadline_s=0.2, **credentials))
    sources += [rtsp("rtsp://127.0.0.1:1/door", **credentials), http("http://127.0.0.1:1/door", **credentials)]
    sources.append(http("http://nobody.invalid/door", **credentials))
    for source in sources:
        error = fails(source)
        told = "".join([str(error), repr(error), repr(source), repr(source._address), *traceback.format_exception(error)])
        assert "heim" not in told


# --- HTTP


@pytest.mark.parametrize(("status", "error"), [(404, NotFound), (401, Unauthorized), (403, Unauthorized), (503, SourceError)])
def test_what_an_http_server_answers_is_told(http_server: HttpServer, status, error):
    assert type(fails(http(http_server.add("/door", b"", status=status)))) is error


def test_an_http_server_that_never_answers_is_given_up_at_the_deadline(http_server: HttpServer):
    started_s = time.monotonic()
    assert type(fails(http(http_server.add("/door", b"", silent=True), deadline_s=DEADLINE_S))) is SourceTimeout
    assert DEADLINE_S * 0.9 <= time.monotonic() - started_s <= DEADLINE_S + LATE_S


def test_an_http_stream_that_stalls_is_given_up(http_server: HttpServer, clip: ClipCache):
    data = clip(".ts", frames=FRAMES, gop=10).read_bytes() * 20  # more than is looked at while opening
    url = http_server.add("/door", data, stall_after_bytes=len(data) * 9 // 10)
    started_s = time.monotonic()
    assert type(fails(http(url, deadline_s=DEADLINE_S))) is SourceTimeout
    assert time.monotonic() - started_s <= 2 * (DEADLINE_S + LATE_S)


@pytest.mark.parametrize("content", [b"", b"<html>Welcome to your camera</html>" * 100, bytes(10_000)], ids=["empty", "page", "zeros"])
def test_what_is_no_video_over_http_is_told(http_server: HttpServer, content):
    assert type(fails(http(http_server.add("/door", content)))) is NotVideo


def test_a_playlist_over_http_reads_its_segments(http_server: HttpServer, clip: ClipCache):
    http_server.add("/segment.ts", clip(".ts", frames=FRAMES, gop=10, camera=3))
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:0.8,\nsegment.ts\n#EXT-X-ENDLIST\n"
    source = http(http_server.add("/live.m3u8", playlist))
    packets = []
    try:
        info = source.open()
        with contextlib.suppress(Disconnected):
            packets += source.packets()
    finally:
        source.close()
    assert seen(info, packets)[-1] == Marker(3, FRAMES - 1)


@pytest.mark.parametrize("name", ["{file}", "file://{file}", "file:{file}", "concat:{file}", "subfile,,start,0,end,0,,:{file}"])
def test_a_playlist_over_http_opens_no_file_of_this_machine(http_server: HttpServer, clip: ClipCache, name):
    """The clip is a good one: were it opened, there would be packets."""
    segment = name.format(file=clip(".ts", frames=FRAMES, gop=10, camera=3))
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:0.8,\n{segment}\n#EXT-X-ENDLIST\n".encode()
    packets: list[Packet] = []
    fails(http(http_server.add("/live.m3u8", playlist)), into=packets)
    assert not packets
    concat = http_server.add("/list.ffconcat", f"ffconcat version 1.0\nfile '{segment}'\n".encode())
    assert type(fails(http(concat))) is NotVideo


def test_credentials_are_encoded_as_an_address_needs_it():
    url = network.with_credentials("rtsp://door:554/a?b=c", username="us:er", password="p@/#? %é")
    assert url == "rtsp://us%3Aer:p%40%2F%23%3F%20%25%C3%A9@door:554/a?b=c"
    assert network.with_credentials("rtsp://door/", username=None, password=None) == "rtsp://door/"
    assert network.with_credentials("rtsp://[::1]/", username="viewer", password=None) == "rtsp://viewer@[::1]/"
