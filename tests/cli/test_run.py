"""`streamd run` before it becomes a daemon: options and configuration errors. The daemon itself: tests/daemon."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from streamd.cli import app
from streamd.daemon import daemon


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "streamd.yaml").write_text("models: {imagenet: {torchvision: resnet50}}\n")
    (tmp_path / "cameras").mkdir()
    (tmp_path / "cameras" / "door.yaml").write_text("url: rtsp://door.example/1\n")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def test_each_problem_of_the_configuration_is_a_line_on_standard_error(folder):
    (folder / "streamd.yaml").write_text("models: {imagenet: {torchvision: resnet50}}\nengine: {max_batch: 0, slotz: 3}\n")
    (folder / "cameras" / "door.yaml").write_text("url: rtsp://door.example/1\nfps: -1\n")
    result = run("--config", folder)
    assert result.exit_code == os.EX_CONFIG
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(str(folder)) for line in lines)


def test_no_configuration_has_its_own_exit_code(tmp_path):
    result = run("--config", tmp_path / "absent")
    assert result.exit_code == os.EX_NOINPUT
    assert "absent" in result.stderr


@pytest.mark.parametrize(
    ("options", "log_level", "log_json"),
    [
        ([], "info", None),
        (["--log-level", "debug", "--log-format", "json"], "debug", True),
        (["--log-format", "console"], "info", False),
    ],
)
def test_options_reach_the_daemon_and_its_exit_code_the_shell(folder, monkeypatch, options, log_level, log_json):
    given = []
    monkeypatch.setattr(daemon, "run", lambda path, **rest: given.append((path, rest)) or os.EX_UNAVAILABLE)
    assert run("--config", folder, *options).exit_code == os.EX_UNAVAILABLE
    assert given == [(folder, {"log_level": log_level, "log_json": log_json})]


def test_an_option_that_redis_does_not_know_is_a_problem_of_the_configuration(folder):
    script = f"from streamd.cli import main; import sys; sys.argv[1:] = ['run', '--config', {str(folder)!r}]; main()"
    (folder / "streamd.yaml").write_text("models: {imagenet: {torchvision: resnet50}}\nredis: {url: 'redis://127.0.0.1:1/0?nonsense=1'}\n")
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == os.EX_CONFIG
    assert ran.stderr.startswith("redis.url: ")
    assert "nonsense" in ran.stderr
    assert "Traceback" not in ran.stderr
