"""The camera file that a probe writes is one that the daemon takes, and holds no secret."""

from pathlib import Path

import pytest

from streamd.config import CameraConfig, load
from streamd.errors import ConfigError
from streamd.probe.camera_file import NotWritten, camera_yaml, check_place, variable
from streamd.probe.report import Color, Gop, Report, Times, Verdict

REPORT = Report(
    address="rtsp://192.0.2.10/s",
    live=True,
    codec="h264",
    profile="High",
    width=1920,
    height=1080,
    pixel_format="yuv420p",
    bit_depth=8,
    rotation_deg=0,
    frame_rate_declared=25.0,
    frame_rate_measured=24.9,
    gop=Gop(frames=50, shortest=50, seconds=2.0),
    b_frames=False,
    color=Color(matrix="bt709", full_range=False, matrix_tagged=False, range_tagged=True),
    bit_rate=4e6,
    times=Times(open=0.1, first_packet=0.2, first_frame=0.3),
    decoder=Verdict(name="cpu", reason="no NVIDIA driver here"),
    packets=60,
    seconds=2.4,
    notes=["B-frames: \u201cnone\u201d"],
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cameras").mkdir()
    (tmp_path / "streamd.yaml").write_text("models: {imagenet: {torchvision: resnet50}}\n")
    return tmp_path


def written(folder: Path, camera: CameraConfig, **arguments) -> tuple[str, list[str]]:
    text, variables = camera_yaml("front-door", REPORT, camera, **{"password_variable": None, **arguments})
    (folder / "cameras/front-door.yaml").write_text(text)
    return text, variables


@pytest.mark.parametrize(
    "camera",
    [
        CameraConfig(url="rtsp://192.0.2.10:8554/s?channel=1&subtype=0"),
        CameraConfig(url="rtsp://[2001:db8::1]/s", transport="udp"),
        CameraConfig(url="http://192.0.2.10/a b#c: d"),
        CameraConfig(url="rtsp://192.0.2.10/${x}/s"),
        CameraConfig(url='/videos/a # b: c\'s "d".mp4'),
        CameraConfig(url="rtsp://192.0.2.10/s", username="true"),
        CameraConfig(url="rtsp://192.0.2.10/s", username="vi${e}w: er#'\""),
        CameraConfig(url="rtsp://192.0.2.10/s", username="0x12"),
    ],
    ids=lambda camera: camera.url,
)
def test_the_daemon_reads_back_what_was_probed(folder, camera):
    written(folder, camera)
    read = load(folder).cameras["front-door"]
    assert (read.url, read.username, read.transport) == (camera.url, camera.username, camera.transport)


def test_a_password_is_a_reference_to_a_variable(folder, monkeypatch):
    text, variables = written(folder, CameraConfig(url="rtsp://192.0.2.10/s", username="viewer", password="canary"))
    assert "canary" not in text
    assert variables == ["FRONT_DOOR_PASSWORD"]
    monkeypatch.delenv("FRONT_DOOR_PASSWORD", raising=False)
    with pytest.raises(ConfigError, match="FRONT_DOOR_PASSWORD"):
        load(folder)
    monkeypatch.setenv("FRONT_DOOR_PASSWORD", "canary")
    assert load(folder).cameras["front-door"].password.get_secret_value() == "canary"


def test_the_variable_that_the_password_came_from_is_the_one_referred_to(folder):
    _, variables = written(folder, CameraConfig(url="rtsp://192.0.2.10/s", password="canary"), password_variable="CAM")
    assert variables == ["CAM"]


def test_a_password_inside_the_address_becomes_a_reference_too(folder, monkeypatch):
    camera = CameraConfig(url="rtsp://192.0.2.10/live?user=admin&password=canary1&token=canary2&channel=1")
    text, variables = written(folder, camera)
    assert "canary" not in text
    assert variables == ["FRONT_DOOR_URL_SECRET", "FRONT_DOOR_URL_SECRET_2"]
    monkeypatch.setenv("FRONT_DOOR_URL_SECRET", "canary1")
    monkeypatch.setenv("FRONT_DOOR_URL_SECRET_2", "canary2")
    assert load(folder).cameras["front-door"].url == camera.url


def test_it_names_the_schema_and_says_what_was_found(folder):
    text, _ = written(folder, CameraConfig(url="rtsp://192.0.2.10/s"))
    assert text.startswith("# yaml-language-server: $schema=../schema/camera.schema.json\n")
    for fact in ("H.264 High", "1920x1080", "every 50 frames (2.00 s)", "# fps: 5 # classify so many frames a second of 24.9"):
        assert fact in text


@pytest.mark.parametrize(("name", "expected"), [("front-door", "FRONT_DOOR_PASSWORD"), ("7.yard", "CAMERA_7_YARD_PASSWORD")])
def test_a_variable_is_named_after_the_camera(name, expected):
    assert variable(name, "PASSWORD") == expected


def test_a_file_is_not_written_where_no_camera_file_can_be(tmp_path):
    (tmp_path / "door.yaml").write_text("")
    for path, words in [
        ("door.yaml", "--force"),
        ("door.txt", "ends in .yaml"),
        ("-door.yaml", "the camera's"),
        ("x/door.yaml", "no folder"),
    ]:
        with pytest.raises(NotWritten, match=words):
            check_place(tmp_path / path, overwrite=False)
    check_place(tmp_path / "door.yaml", overwrite=True)
    check_place(tmp_path / "yard.yml", overwrite=False)
