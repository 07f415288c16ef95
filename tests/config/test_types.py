"""The types' own rules, apart from files."""

import pytest
from pydantic import ValidationError

from streamd.config.types import CameraConfig, EngineConfig, RedisConfig


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("5m", 300), ("1h", 3600), ("1.5 d", 129600), (2, 2), (0.25, 0.25), ("7", 7)]
)
def test_a_duration_is_seconds_or_a_text_with_a_unit(text, seconds):
    assert CameraConfig(url="x.mp4", max_age=text).max_age == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "10 parsecs", "-1s", "0ms", "nan", "inf", True, None, "9" * 400 + "d"])
def test_what_is_no_positive_duration_is_refused(text):
    with pytest.raises(ValidationError):
        CameraConfig(url="x.mp4", max_age=text)


@pytest.mark.parametrize(
    "url",
    [
        "rtsp://u:hunter2@h/",
        "rtsp://hunter2@h/",
        "rtsp://h:hunter2/",
        "rtsp://u:hun\u2100ter2@h/",
        "rtsp://[hunter2/",
        "hunter2://h/",
        "rtsp:///hunter2",
        " ",
    ],
)
def test_a_bad_address_is_refused_without_repeating_it(url):
    with pytest.raises(ValidationError) as caught:
        CameraConfig(url=url)
    assert not any(part in str(caught.value) for part in ("hunter2", "ter2"))


@pytest.mark.parametrize("url", ["http://h/", "redis://u:hunter2@h/0", "redis://h/0?password=hunter2", "rediss://h:hunter2/"])
def test_a_bad_redis_address_is_refused_without_repeating_it(url):
    with pytest.raises(ValidationError) as caught:
        RedisConfig(url=url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", [True, False])
def test_true_is_no_number(value):
    for section, key in ((EngineConfig, "max_batch"), (EngineConfig, "workers"), (EngineConfig, "max_wait")):
        with pytest.raises(ValidationError, match="must be a number"):
            section.model_validate({key: value})
    with pytest.raises(ValidationError):
        CameraConfig.model_validate({"url": "x.mp4", "rotate": value})


def test_a_file_is_live_only_when_it_is_paced():
    assert not CameraConfig(url="x.mp4").is_live
    assert CameraConfig(url="x.mp4", realtime=True).is_live
    assert CameraConfig(url="RTSP://h/").is_live
    assert CameraConfig(url="file:///x.mp4").is_file


def test_live_cameras_rank_above_all_files_and_each_by_priority():
    ranks = [
        CameraConfig(url=url, priority=priority).rank for url in ("x.mp4", "rtsp://192.0.2.1/s") for priority in ("low", "normal", "high")
    ]
    assert ranks == sorted(set(ranks))
    assert CameraConfig(url="x.mp4", realtime=True).rank == CameraConfig(url="rtsp://192.0.2.1/s", priority="normal").rank


@pytest.mark.parametrize("keys", [{}, {"rotate": 0}, {"fps": 5, "priority": "low", "decode": "all"}, {"url": "file:///x.mp4"}])
def test_dali_takes_files(keys):
    assert CameraConfig.model_validate({"url": "x.mp4", "decoder": "dali", **keys}).decoder == "dali"


@pytest.mark.parametrize("url", ["rtsp://192.0.2.1/s", "https://192.0.2.1/s.mp4"])
def test_dali_for_a_live_camera_is_refused_with_what_to_take_instead(url):
    with pytest.raises(ValidationError, match=r"`decoder: dali` is for files; a live camera takes auto, nvdec or cpu"):
        CameraConfig(url=url, decoder="dali")


@pytest.mark.parametrize("keys", [{"realtime": True}, {"loop": True}, {"decode": "keyframes"}, {"rotate": 90}])
def test_dali_with_what_it_cannot_do_is_refused_with_what_to_do(keys):
    with pytest.raises(ValidationError, match=r"goes once through all frames of a file, as they are: take out .*, or take nvdec"):
        CameraConfig.model_validate({"url": "x.mp4", "decoder": "dali", **keys})
