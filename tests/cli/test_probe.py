"""`streamd probe`, as people and programs call it."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.rtsp import RtspServer
from typer.testing import CliRunner

from streamd.cli import app

SECRET = "canary/#?@%41"


def probe(*arguments: object, **options):
    return CliRunner().invoke(app, ["probe", *map(str, arguments)], **options)


@pytest.fixture
def door(clip) -> Iterator[str]:
    """The address of a camera that wants the user `viewer` with SECRET."""
    with RtspServer() as server:
        server.add("/door", clip(".mp4"), username="viewer", password=SECRET)
        yield server.url("/door")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A configuration that lacks nothing but cameras."""
    (tmp_path / "cameras").mkdir()
    (tmp_path / "streamd.yaml").write_text("models: {imagenet: {torchvision: resnet50}}\n")
    return tmp_path


def test_a_video_is_described_in_lines(clip):
    path = clip(".mp4", frames=110)
    result = probe(path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == str(path)
    for fact in ("H.264", "320x240", "25 measured, 25 declared", "every 25 frames (1.00 s)", "B-frames    no"):
        assert fact in result.stdout


def test_programs_get_one_json_object(clip):
    result = probe(clip(".mp4", frames=110), "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["schema"], report["codec"], report["gop"]["frames"]) == (0, 1, "h264", 25)


@pytest.mark.parametrize(
    ("address", "code", "error"),
    [
        ("missing.mp4", 66, "not_found"),
        (__file__, 65, "not_video"),
        ("rtsp://127.0.0.1:{closed}/door", 69, "unreachable"),
    ],
)
def test_what_is_wrong_has_a_word_for_programs_and_an_exit_code(address, code, error):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening
        address = address.format(closed=closed.getsockname()[1])
        result = probe(address, "--json", "--timeout", "2")
        assert (result.exit_code, json.loads(result.stdout)["error"]) == (code, error)
        result = probe(address, "--timeout", "2")
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (code, "", 1)


def test_a_wrong_password_is_exit_code_77_and_is_not_shown(door):
    address = door.replace("rtsp://", "rtsp://viewer:canary-wrong@")
    for arguments in ([address], [address, "--json"]):
        result = probe(*arguments)
        assert result.exit_code == 77
        assert "canary" not in result.output


@pytest.mark.parametrize("way", ["address", "env", "file", "stdin"])
def test_every_way_to_give_the_password_works_and_shows_it_nowhere(door, way, monkeypatch, tmp_path):
    monkeypatch.setenv("DOOR_SECRET", SECRET)
    (tmp_path / "secret").write_text(SECRET + "\n")
    match way:
        case "address":
            result = probe(
                door.replace(
                    "rtsp://", f"rtsp://viewer:{SECRET.replace('%', '%25').replace('/', '%2F').replace('#', '%23').replace('?', '%3F')}@"
                ),
                "--seconds",
                "0.2",
            )
        case "env":
            result = probe(door, "--username", "viewer", "--password-env", "DOOR_SECRET", "--seconds", "0.2")
        case "file":
            result = probe(door, "--username", "viewer", "--password-file", tmp_path / "secret", "--seconds", "0.2")
        case "stdin":
            result = probe(door, "--username", "viewer", "--password", "-", "--seconds", "0.2", input=SECRET + "\n")
    assert result.exit_code == 0, result.output
    assert "canary" not in result.output


def test_a_password_on_the_command_line_is_refused_and_not_repeated():
    result = probe("rtsp://127.0.0.1/door", "--password", "canary")
    assert result.exit_code == 2
    assert "--password -" in result.output
    assert "canary" not in result.output


def test_a_camera_file_is_written_and_check_accepts_it(door, folder, monkeypatch):
    file = folder / "cameras/front-door.yaml"
    address = door.replace("rtsp://", "rtsp://viewer:canary%2F%23%3F%40%2541@")
    result = probe(address, "--seconds", "0.2", "--write", file)
    assert result.exit_code == 0, result.output
    assert f"wrote {file}; it needs FRONT_DOOR_PASSWORD in the environment" in result.stderr
    assert "canary" not in file.read_text() + result.output
    monkeypatch.setenv("FRONT_DOOR_PASSWORD", SECRET)
    checked = CliRunner().invoke(app, ["check", str(folder)])
    assert (checked.exit_code, "1 camera, 1 model: no problems" in checked.stdout) == (0, True)


def test_a_camera_file_is_not_overwritten_unless_forced(clip, folder):
    file = folder / "cameras/door.yaml"
    file.write_text("url: rtsp://192.0.2.1/mine\n")
    result = probe(clip(".mp4"), "--write", file)
    assert (result.exit_code, file.read_text()) == (os.EX_CANTCREAT, "url: rtsp://192.0.2.1/mine\n")
    result = probe(clip(".mp4"), "--write", file, "--force")
    assert (result.exit_code, f"url: {clip('.mp4')}" in file.read_text()) == (0, True)


def test_what_cannot_be_opened_is_not_written(folder):
    probe("missing.mp4", "--write", folder / "cameras/door.yaml")
    assert not (folder / "cameras/door.yaml").exists()


def test_a_camera_that_never_answers_does_not_hold_the_command():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"rtsp://viewer:canary@127.0.0.1:{listener.getsockname()[1]}/door"
        started_s = time.monotonic()
        result = subprocess.run(
            [sys.executable, "-m", "streamd", "probe", "--timeout", "1", address], capture_output=True, text=True, check=False, timeout=60
        )
    assert (result.returncode, result.stdout, "is silent" in result.stderr, "canary" in result.stderr) == (69, "", True, False)
    assert time.monotonic() - started_s < 15
