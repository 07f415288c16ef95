import itertools

import av
import av.error
import pytest
from support.clips import ClipCache, read_marker

OPTIONS = {"rtsp_transport": "tcp", "timeout": "5000000", "analyzeduration": "100000"}


@pytest.mark.parametrize(("suffix", "b_frames"), [(".mp4", 0), (".ts", 0), (".mp4", 2)])
def test_a_file_is_served_frame_by_frame(clip: ClipCache, gst_server, suffix, b_frames):
    server = gst_server(clip(suffix, frames=20, gop=10, b_frames=b_frames, camera=9))
    with av.open(server.url(), options=OPTIONS) as container:
        markers = [read_marker(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    assert [marker.frame for marker in markers] == list(range(20))


def test_test_pictures_need_no_file_and_have_no_end(gst_server):
    with av.open(gst_server(None, None).url(1), options=OPTIONS) as container:
        assert len(list(itertools.islice(container.demux(video=0), 10))) == 10


def test_only_the_right_password_is_let_in(gst_server):
    server = gst_server(None, username="viewer", password="secret")
    with pytest.raises(av.error.HTTPUnauthorizedError):
        av.open(f"rtsp://viewer:wrong@{server.address}/cam0", options=OPTIONS)
    with av.open(f"rtsp://viewer:secret@{server.address}/cam0", options=OPTIONS) as container:
        assert next(container.demux(video=0)).size


def test_a_killed_server_comes_back_on_its_port(gst_server):
    server = gst_server(None)
    port = server.port
    server.kill()
    with pytest.raises(av.error.ConnectionRefusedError):
        av.open(server.url(), options=OPTIONS)
    server.start()
    assert server.port == port
    with av.open(server.url(), options=OPTIONS) as container:
        assert next(container.demux(video=0)).size
