"""What people type after `streamd probe`."""

from pathlib import Path

import pytest

from streamd.probe.address import Address, split


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rtsp://192.0.2.10/stream1", Address("rtsp://192.0.2.10/stream1")),
        ("RTSP://camera:8554/a?b=c", Address("rtsp://camera:8554/a?b=c")),
        ("rtsp://viewer:secret@camera/s", Address("rtsp://camera/s", "viewer", "secret")),
        ("rtsp://viewer@camera/s", Address("rtsp://camera/s", "viewer")),
        ("rtsp://viewer:@camera/s", Address("rtsp://camera/s", "viewer", "")),
        ("rtsp://vi%40ewer:p%2Fss%25@camera/s", Address("rtsp://camera/s", "vi@ewer", "p/ss%")),
        ("rtsp://viewer:p@ss@camera/s", Address("rtsp://camera/s", "viewer", "p@ss")),
        ("rtsp://viewer:p/s%41@camera:554/s", Address("rtsp://camera:554/s", "viewer", "p/s%41")),
        ("rtsp://viewer:pass#1?@camera/s", Address("rtsp://camera/s", "viewer", "pass#1?")),
        ("rtsp://[2001:db8::1]:554/a@b", Address("rtsp://[2001:db8::1]:554/a@b")),
        ("rtsp://camera:554/a@b", Address("rtsp://camera:554/a@b")),
        ("file:///videos/my%20clip.mp4", Address("/videos/my clip.mp4")),
    ],
)
def test_an_address_is_taken_apart(text, expected):
    assert split(text) == expected


def test_a_path_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert split("clip.mp4") == Address(str(Path(tmp_path, "clip.mp4")))


@pytest.mark.parametrize(
    "text", ["", " ", "ftp://user:canary@host/x", "rtsp://", "rtsp:///x", "rtsp://user:canary@host:99999/", "rtsp://u:canary@[x/"]
)
def test_what_is_no_address_is_refused_without_repeating_it(text):
    with pytest.raises(ValueError, match="address") as raised:
        split(text)
    assert "canary" not in str(raised.value)
