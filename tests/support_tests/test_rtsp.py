import base64
import contextlib
import itertools
import re
import socket
import time
from pathlib import Path

import av
import av.error
import pytest
from support.clips import ClipCache, Marker, read_marker
from support.rtsp import RtspServer
from support.wait import wait_until

FRAMES = 30
FAST = {"speed": 0, "loop": False}


@pytest.fixture
def camera(clip: ClipCache) -> Path:
    return clip(".mp4", frames=FRAMES, gop=10, camera=3)


def options(*, transport: str = "tcp", timeout_s: float = 5.0) -> dict[str, str]:
    return {"rtsp_transport": transport, "timeout": str(int(timeout_s * 1e6)), "analyzeduration": "100000"}


def watch(url: str, *, limit: int | None = None, transport: str = "tcp", timeout_s: float = 5.0) -> list[int | None]:
    """The frame numbers that a client sees; None for pictures without a readable one.

    All is received before any is decoded: over UDP, a client that is busy loses packets.
    """
    packets, numbers = [], []
    with av.open(url, options=options(transport=transport, timeout_s=timeout_s)) as container:
        with contextlib.suppress(av.error.FFmpegError):
            packets += itertools.islice((packet for packet in container.demux(video=0) if packet.size), limit)
        for packet in packets:
            with contextlib.suppress(av.error.FFmpegError):
                numbers += [read_marker(frame.to_ndarray(format="rgb24")) for frame in packet.decode()]
        with contextlib.suppress(av.error.FFmpegError):
            numbers += [read_marker(frame.to_ndarray(format="rgb24")) for frame in container.streams.video[0].decode(None)]
    return [marker.frame if marker else None for marker in numbers]


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize(
    ("suffix", "parameters"),
    [
        (".mp4", {"codec": "h264"}),
        (".ts", {"codec": "h264", "b_frames": 2}),
        (".h264", {"codec": "h264"}),
        (".mkv", {"codec": "hevc", "b_frames": 2}),
    ],
    ids=str,
)
def test_a_client_sees_every_frame_in_order(rtsp_server: RtspServer, clip: ClipCache, suffix, parameters, transport):
    path = rtsp_server.add("/door", clip(suffix, **parameters, frames=FRAMES, gop=10), speed=4 if transport == "udp" else 0, loop=False)
    assert watch(rtsp_server.url("/door"), transport=transport) == list(range(FRAMES))
    assert path.transports == {transport: 1}
    wait_until(lambda: path.teardowns == 1 and path.sessions == 0 and rtsp_server.connections == 0, what="the client has left")


def test_large_frames_arrive_whole(rtsp_server: RtspServer, clip: ClipCache):
    rtsp_server.add("/door", clip(".mp4", frames=10, gop=5, size=(1280, 720)), speed=0, loop=False)
    assert watch(rtsp_server.url("/door")) == list(range(10))


def test_a_clip_repeats_with_times_that_go_on(rtsp_server: RtspServer, clip: ClipCache):
    rtsp_server.add("/door", clip(".mp4", frames=10, gop=10, b_frames=2), speed=8, sender_reports=True)
    with av.open(rtsp_server.url("/door"), options=options()) as container:
        frames = [frame for frame, _ in zip(container.decode(video=0), range(25), strict=False)]
    assert [read_marker(frame.to_ndarray(format="rgb24")) for frame in frames] == [Marker(0, n % 10) for n in range(25)]
    times = [frame.pts for frame in frames[1:]]  # FFmpeg gives the first frame of an RTSP stream no pts
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == [3600] * 23


def test_frames_are_sent_at_the_pace_of_the_clip(rtsp_server: RtspServer, camera):
    path = rtsp_server.add("/door", camera, speed=2, loop=False)
    with _playing(rtsp_server, "/door"):
        started_s = time.monotonic()
        wait_until(lambda: path.frames_sent == FRAMES, what="all frames sent")
    assert 0.9 * FRAMES / 50 <= time.monotonic() - started_s + 0.04 <= 3 * FRAMES / 50


def test_many_cameras_do_not_mix(rtsp_server: RtspServer, clip: ClipCache):
    for number in range(3):
        rtsp_server.add(f"/{number}", clip(".mp4", frames=10, gop=10, camera=number), speed=8)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(av.open(rtsp_server.url(f"/{number}"), options=options())) for number in range(3)]
        pictures = [next(client.decode(video=0)).to_ndarray(format="rgb24") for client in clients]
    assert [read_marker(picture).camera for picture in pictures] == [0, 1, 2]


@pytest.mark.parametrize("auth", ["digest", "digest-rfc2069", "basic"])
def test_only_the_right_password_is_let_in(rtsp_server: RtspServer, camera, auth):
    path = rtsp_server.add("/door", camera, username="viewer", password="p@ss:1", auth=auth, **FAST)
    with pytest.raises(av.error.HTTPUnauthorizedError):
        av.open(f"rtsp://viewer:wrong@{rtsp_server.address}/door", options=options())
    assert path.refused >= 1
    with pytest.raises(av.error.HTTPUnauthorizedError):
        av.open(rtsp_server.url("/door"), options=options())
    assert path.plays == 0
    refused = path.refused
    assert watch(f"rtsp://viewer:p%40ss%3A1@{rtsp_server.address}/door", limit=5) == list(range(5))
    assert path.refused == refused


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"not_found": True}, av.error.HTTPNotFoundError),
        ({"forbidden": True}, av.error.HTTPForbiddenError),
        ({"unauthorized": True}, av.error.HTTPUnauthorizedError),
    ],
    ids=str,
)
def test_a_refusing_path_refuses_until_changed(rtsp_server: RtspServer, camera, fault, error):
    path = rtsp_server.add("/door", camera, **fault, **FAST)
    with pytest.raises(error):
        av.open(f"rtsp://viewer:secret@{rtsp_server.address}/door", options=options())
    assert path.plays == 0
    rtsp_server.change("/door", **dict.fromkeys(fault, False))
    assert watch(rtsp_server.url("/door"), limit=3) == [0, 1, 2]


def test_an_unknown_path_is_not_found(rtsp_server: RtspServer):
    with pytest.raises(av.error.HTTPNotFoundError):
        av.open(rtsp_server.url("/nowhere"), options=options())


def test_a_silent_path_takes_the_connection_and_answers_nothing(rtsp_server: RtspServer, camera):
    path = rtsp_server.add("/door", camera, silent=True)
    with socket.create_connection(("127.0.0.1", rtsp_server.port), timeout=0.2) as client:
        client.sendall(f"OPTIONS {rtsp_server.url('/door')} RTSP/1.0\r\nCSeq: 1\r\n\r\n".encode())
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert (path.requests["OPTIONS"], path.connections, rtsp_server.connections) == (1, 1, 1)


def test_without_rtp_play_is_answered_and_nothing_follows(rtsp_server: RtspServer, camera):
    path = rtsp_server.add("/door", camera, no_rtp=True, **FAST)
    with _playing(rtsp_server, "/door") as client:
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
    assert (path.plays, path.frames_sent) == (1, 0)


def test_a_stalled_session_keeps_its_connection_and_can_go_on(rtsp_server: RtspServer, camera):
    path = rtsp_server.add("/door", camera, speed=8, stall_after=12)
    with _playing(rtsp_server, "/door") as client:
        wait_until(lambda: path.frames_sent == 12, what="12 frames sent")
        assert _comes_to_a_halt(client)
        assert (path.frames_sent, path.sessions) == (12, 1)
        rtsp_server.change("/door", stall_after=None)
        wait_until(lambda: path.frames_sent > 12, what="frames are sent again")


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_a_dropped_session_ends_after_its_frames(rtsp_server: RtspServer, camera, transport):
    path = rtsp_server.add("/door", camera, speed=8, drop_after=12)
    seen = watch(rtsp_server.url("/door"), transport=transport, timeout_s=0.5)
    assert seen == list(range(12))
    assert path.frames_sent == 12
    wait_until(lambda: path.sessions == 0 and rtsp_server.connections == 0, what="the connection is closed")
    assert path.teardowns == 0


def test_garbage_holds_no_picture(rtsp_server: RtspServer, camera):
    path = rtsp_server.add("/door", camera, garbage=True, **FAST)
    assert not any(number is not None for number in watch(rtsp_server.url("/door")))
    assert path.frames_sent == FRAMES


@pytest.mark.parametrize("where", ["no_parameter_sets_in_band", "no_parameter_sets_in_sdp"])
@pytest.mark.parametrize(("suffix", "codec"), [(".mp4", "h264"), (".mkv", "hevc")])
def test_parameter_sets_come_in_one_place_only(rtsp_server: RtspServer, clip: ClipCache, where, suffix, codec):
    rtsp_server.add("/door", clip(suffix, codec=codec, frames=FRAMES, gop=10), **{where: True}, **FAST)
    assert watch(rtsp_server.url("/door")) == list(range(FRAMES))
    described = _describe(rtsp_server, "/door")
    assert (b"sprop-" in described) == (where == "no_parameter_sets_in_band")
    rtsp_server.change("/door", no_parameter_sets_in_band=True, no_parameter_sets_in_sdp=True)
    assert watch(rtsp_server.url("/door"), timeout_s=0.5) == []


def test_lost_packets_are_lost_the_same_way_each_time(rtsp_server: RtspServer, clip: ClipCache):
    path = rtsp_server.add("/door", clip(".mp4", frames=FRAMES, gop=10), lose=0.2, seed=4, **FAST)
    watch(rtsp_server.url("/door"))
    sent, lost = path.packets_sent, path.packets_lost
    assert 0.05 < lost / (sent + lost) < 0.4
    watch(rtsp_server.url("/door"))
    assert (path.packets_sent, path.packets_lost) == (2 * sent, 2 * lost)


def test_a_session_may_start_in_mid_gop(rtsp_server: RtspServer, camera):
    rtsp_server.add("/door", camera, starts_mid_gop=True, **FAST)
    with av.open(rtsp_server.url("/door"), options=options()) as container:
        packets = [packet.is_keyframe for packet in container.demux(video=0) if packet.size]
    assert len(packets) == FRAMES - 2
    assert packets.index(True) == 8


def test_a_killed_server_comes_back_on_its_port_with_its_paths(rtsp_server: RtspServer, camera):
    path = rtsp_server.add("/door", camera, speed=8)
    port = rtsp_server.port
    with _playing(rtsp_server, "/door") as client:
        rtsp_server.stop()
        with contextlib.suppress(ConnectionError):
            while client.recv(1 << 16):
                pass
    assert (path.sessions, rtsp_server.connections) == (0, 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    rtsp_server.start()
    assert rtsp_server.port == port
    assert watch(rtsp_server.url("/door"), limit=3) == [0, 1, 2]


def test_killed_connections_leave_the_server_up(rtsp_server: RtspServer, camera):
    path = rtsp_server.add("/door", camera, speed=8)
    with _playing(rtsp_server, "/door") as client:
        rtsp_server.kill_connections()
        with contextlib.suppress(ConnectionError):
            while client.recv(1 << 16):
                pass
    wait_until(lambda: path.sessions == 0, what="the session is over")
    assert watch(rtsp_server.url("/door"), limit=3) == [0, 1, 2]


def test_the_sdp_holds_the_parameter_sets(rtsp_server: RtspServer, camera):
    path = rtsp_server.add("/door", camera)
    sets = re.search(rb"sprop-parameter-sets=(\S+)", _describe(rtsp_server, "/door"))[1].split(b",")
    assert tuple(map(base64.b64decode, sets)) == path.track.parameter_sets


def _describe(server: RtspServer, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        return _ask(client, f"DESCRIBE {server.url(path)} RTSP/1.0\r\nCSeq: 1\r\n\r\n", until=b"a=control:track1\r\n")


@contextlib.contextmanager
def _playing(server: RtspServer, path: str):
    """A client that asked for TCP and PLAY, and whose socket holds what follows."""
    url = server.url(path)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1"
        _ask(client, f"SETUP {url}/track1 RTSP/1.0\r\nCSeq: 1\r\n{transport}\r\n\r\n")
        _ask(client, f"PLAY {url}/ RTSP/1.0\r\nCSeq: 2\r\n\r\n")
        yield client


def _comes_to_a_halt(client: socket.socket) -> bool:
    """Read until nothing comes any more: true where the connection is still there."""
    client.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        while client.recv(1 << 16):
            pass
        return False
    return True


def _ask(client: socket.socket, request: str, *, until: bytes = b"\r\n\r\n") -> bytes:
    client.sendall(request.encode())
    answer = b""
    while not answer.endswith(until):
        byte = client.recv(1)
        assert byte, answer
        answer += byte
    assert answer.startswith(b"RTSP/1.0 200"), answer
    return answer
