"""One look at real files and at a real RTSP server, well and unwell."""

import socket
import threading
from collections.abc import Iterator

import pytest
from support.rtsp import RtspServer
from support.wait import wait_until

from streamd.config import CameraConfig
from streamd.errors import NoFrames, NotFound, NotVideo, SourceError, SourceTimeout, Unauthorized, Unreachable
from streamd.probe import Limits, Report, probe


def look(url: object, *, watch_s: float = 5.0, timeout_s: float = 5.0, **camera: object) -> Report:
    timeouts = {"connect_timeout": timeout_s, "first_packet_timeout": timeout_s, "silence_timeout": timeout_s}
    return probe(CameraConfig.model_validate({"url": str(url), **timeouts, **camera}), Limits(answer_s=timeout_s, watch_s=watch_s))


@pytest.fixture
def server() -> Iterator[RtspServer]:
    with RtspServer() as server:
        yield server


def test_a_file_is_described_as_it_was_made(clip):
    report = look(clip(".mp4", size=(640, 360), frames=120, fps=25, gop=50, b_frames=2, matrix="bt709", full_range=False))
    assert (report.codec, report.width, report.height, report.pixel_format, report.bit_depth) == ("h264", 640, 360, "yuv420p", 8)
    assert (report.frame_rate_declared, report.frame_rate_measured) == (25, 25)
    assert (report.gop.frames, report.gop.shortest, report.gop.seconds) == (50, 50, 2)
    assert report.b_frames
    assert (report.color.matrix, report.color.full_range, report.color.matrix_tagged, report.color.range_tagged) == (
        "bt709",
        False,
        True,
        True,
    )
    assert (report.rotation_deg, report.live, report.decoder.name, report.notes) == (0, False, report.decoder.name, [])
    assert report.times.open <= report.times.first_packet <= report.times.first_frame < 5


@pytest.mark.parametrize(
    ("made", "codec", "pixel_format", "bit_depth"),
    [
        ({"codec": "hevc", "pixel_format": "yuv420p10le"}, "hevc", "yuv420p10le", 10),
        ({"codec": "vp9", "suffix": ".webm"}, "vp9", "yuv420p", 8),
        ({"codec": "av1"}, "av1", "yuv420p", 8),
        ({"codec": "mjpeg", "suffix": ".avi"}, "mjpeg", "yuvj420p", 8),
        ({"codec": "mpeg4", "suffix": ".avi"}, "mpeg4", "yuv420p", 8),
    ],
)
def test_every_codec_that_ffmpeg_decodes_is_described(clip, made, codec, pixel_format, bit_depth):
    report = look(clip(made.pop("suffix", ".mp4"), **made))
    assert (report.codec, report.pixel_format, report.bit_depth, report.b_frames) == (codec, pixel_format, bit_depth, False)


def test_untagged_video_is_said_to_be_untagged(clip):
    color = look(clip(".mp4")).color
    assert (color.matrix, color.full_range, color.matrix_tagged, color.range_tagged) == ("bt601", False, False, False)


def test_a_raw_stream_has_no_measurable_rate(clip):
    report = look(clip(".h264"))
    assert (report.frame_rate_measured, report.gop.frames) == (None, 25)
    assert any("no time stamps" in note for note in report.notes)


def test_a_live_stream_is_left_once_enough_was_seen(server, clip):
    door = server.add("/door", clip(".mp4", gop=25, frames=100))
    report = look(server.url("/door"), watch_s=30)
    assert (report.codec, report.width, report.gop.frames, report.live) == ("h264", 320, 25, True)
    assert report.frame_rate_measured == pytest.approx(25, abs=1)
    assert report.seconds < 10
    wait_until(lambda: (door.plays, door.teardowns) == (1, 1), what="the end of the one session")


def test_a_live_stream_with_rare_key_frames_is_left_after_its_time(server, clip):
    server.add("/door", clip(".mp4", gop=250, frames=250))
    report = look(server.url("/door"), watch_s=0.5)
    assert report.gop.frames is None
    assert any("--seconds" in note for note in report.notes)


def test_right_credentials_are_let_in_and_wrong_ones_refused(server, clip):
    server.add("/door", clip(".mp4"), username="vi@ewer", password="canary/1")
    assert look(server.url("/door"), username="vi@ewer", password="canary/1", watch_s=0.2).codec == "h264"
    with pytest.raises(Unauthorized, match="refuses this user name or password") as raised:
        look(server.url("/door"), username="vi@ewer", password="canary/2")
    assert "canary" not in str(raised.value)
    with pytest.raises(Unauthorized, match="wants a user name and password: give --username"):
        look(server.url("/door"))


@pytest.mark.parametrize(
    ("behaviour", "error", "words"),
    [
        ({"not_found": True}, NotFound, "does not exist"),
        ({"forbidden": True}, Unauthorized, "user name"),
        ({"silent": True}, SourceTimeout, "is silent"),
        ({"no_rtp": True}, SourceError, "is silent|sends no video"),
        ({"garbage": True}, SourceError, "."),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(server, clip, behaviour, error, words):
    server.add("/door", clip(".mp4"), **behaviour)
    with pytest.raises(error, match=words):
        look(server.url("/door"), timeout_s=0.5, watch_s=0.5)


def test_a_stream_that_broke_off_is_described_with_a_note(server, clip):
    server.add("/door", clip(".mp4", gop=250, frames=250), drop_after=30, speed=0)
    report = look(server.url("/door"))
    assert (report.codec, report.gop.frames) == ("h264", None)
    assert any("broke off" in note for note in report.notes)


def test_a_closed_port_is_not_a_wrong_path(server):
    server.stop()
    with pytest.raises(Unreachable, match="refuses connections on port"):
        look(server.url("/door"))


def test_an_unknown_host_is_not_a_closed_port():
    with pytest.raises(Unreachable, match=r"no host nowhere\.invalid|name server does not answer"):
        look("rtsp://nowhere.invalid/door", timeout_s=2)


@pytest.mark.parametrize(
    ("answer", "words"), [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP, not RTSP"), (b"SSH-2.0-x\r\n", "does not speak RTSP")]
)
def test_another_service_on_the_port_is_recognised(answer, words):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(NotVideo, match=words):
            look(f"rtsp://127.0.0.1:{listener.getsockname()[1]}/door", timeout_s=2)
        thread.join(10)


def test_files_that_are_no_video_say_what_they_are(tmp_path, clip):
    with pytest.raises(NotFound, match="does not exist"):
        look(tmp_path / "missing.mp4")
    text = tmp_path / "text.mp4"
    text.write_text("not a video at all\n" * 100)
    with pytest.raises(NotVideo, match="is not a video"):
        look(text)
    damaged = tmp_path / "damaged.h264"
    damaged.write_bytes(bytes(byte ^ 0x55 if at > 60 else byte for at, byte in enumerate(clip(".h264").read_bytes()[:4000])))
    with pytest.raises((NotVideo, NoFrames)):
        look(damaged)
