"""`streamd tail`, as people and programs call it."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from support.records import NOW_MS, event, result, state
from support.wait import wait_until
from typer.testing import CliRunner

from streamd.cli import app
from streamd.records import EventKind, encode

PASSWORD = "canary-p4ss"


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("STREAMD_CONFIG", "STREAMD_REDIS_URL", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def filled(redis_server):
    """A Redis that holds three results of two cameras, and two events."""
    fill(redis_server, "streamd")
    return redis_server


def fill(server, prefix: str) -> None:
    client = server.client()
    for camera, sequence, labels in (("door", 1, ("cat", "dog")), ("door", 2, ()), ("yard", 3, ("espresso",))):
        client.xadd(f"{prefix}:results:{camera}", {"data": encode(result(camera, sequence, labels=labels))})
    for camera, kind, detail in (("door", EventKind.UP, None), ("yard", EventKind.REFUSED, "wrong password\x1b[2J")):
        client.xadd(f"{prefix}:events", {"data": encode(event(camera, kind=kind, detail=detail))})
    for camera in ("door", "yard"):
        client.hset(f"{prefix}:cameras", camera, encode(state(camera)))


def tail(*arguments: str):
    return CliRunner().invoke(app, ["tail", *arguments])


def run(*arguments: str, **options) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "streamd", "tail", *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_a_result_is_one_line_for_people(filled):
    shown = tail("--redis-url", filled.url, "--from-start", "--count", "3", "door", "yard")
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = [re.sub(r"\d\d:\d\d:", "HH:MM:", line) for line in shown.stdout.splitlines()]
    assert lines == [
        "HH:MM:00.040  door          cat 0.75, dog 0.38  23 ms",
        "HH:MM:00.080  door          no confident label  23 ms",
        "HH:MM:00.120  yard          espresso 0.75  23 ms",
    ]


def test_programs_get_a_record_a_line(filled):
    shown = tail("--redis-url", filled.url, "--from-start", "--json", "--count", "2", "door")
    assert shown.exit_code == 0
    records = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(record["type"], record["sequence"], record["captured_ms"]) for record in records] == [
        ("result", 1, NOW_MS + 40),
        ("result", 2, NOW_MS + 80),
    ]


def test_without_names_all_cameras_are_shown(filled):
    shown = tail("--redis-url", filled.url, "--from-start", "--json", "--count", "3")
    assert {json.loads(line)["camera"] for line in shown.stdout.splitlines()} == {"door", "yard"}


def test_events_are_shown_instead_and_cannot_steer_the_terminal(filled):
    shown = tail("--redis-url", filled.url, "--from-start", "--events", "--count", "2")
    assert [line.split()[1:3] for line in shown.stdout.splitlines()] == [["door", "up"], ["yard", "refused"]]
    assert "\x1b" not in shown.stdout
    assert "wrong password\N{REPLACEMENT CHARACTER}[2J" in shown.stdout


def test_events_of_named_cameras(filled):
    shown = tail("--redis-url", filled.url, "--from-start", "--events", "--json", "--count", "1", "yard")
    assert json.loads(shown.stdout)["kind"] == "refused"


def test_colours_are_for_terminals_only(filled, monkeypatch):
    arguments = ("--redis-url", filled.url, "--from-start", "--count", "1", "door")
    assert "\x1b[" not in tail(*arguments).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1mcat" in tail(*arguments).stdout


def test_a_camera_that_is_not_there_is_mentioned(filled):
    shown = tail("--redis-url", filled.url, "--from-start", "--count", "1", "dor", "door")
    assert shown.stderr == "Not among the cameras yet: dor (there are door, yard); waiting.\n"


def test_an_unreachable_redis_is_one_sentence_and_exit_code_69():
    shown = tail("--redis-url", f"redis://u:{PASSWORD}@127.0.0.1:1/0")
    assert (shown.exit_code, shown.stdout) == (os.EX_UNAVAILABLE, "") == (69, "")
    assert shown.stderr == "Redis cannot be read: redis://***@127.0.0.1:1/0: Connection refused\n"


def test_a_wrong_password_is_exit_code_69_and_not_shown(redis_server):
    shown = tail("--redis-url", redis_server.url.replace("//", f"//nobody:{PASSWORD}@"))
    assert shown.exit_code == 69
    assert "invalid username-password pair" in shown.stderr
    assert PASSWORD not in shown.output


def test_an_address_that_is_none_is_exit_code_64():
    shown = tail("--redis-url", "http://127.0.0.1")
    assert (shown.exit_code, shown.stderr.count("\n")) == (os.EX_USAGE, 1)


# --- where Redis is


def write_config(folder, **redis) -> None:
    (folder / "cameras").mkdir(parents=True)
    (folder / "streamd.yaml").write_text(json.dumps({"redis": redis or None, "jsonl": {}, "models": {"m": {"torchvision": "resnet50"}}}))
    (folder / "cameras/door.yaml").write_text("url: rtsp://192.0.2.10/\n")


def shows_a_result(*arguments: str) -> bool:
    shown = tail("--from-start", "--json", "--count", "1", *arguments)
    assert shown.exit_code in {0, 69}, shown.output
    return shown.exit_code == 0


def test_the_environment_says_where_redis_is(filled, monkeypatch):
    monkeypatch.setenv("STREAMD_REDIS_URL", filled.url)
    assert shows_a_result()


def test_the_configuration_says_where_redis_is_and_the_prefix(redis_server, tmp_path):
    fill(redis_server, "house")
    write_config(tmp_path / "configs", url=redis_server.url, prefix="house")
    assert shows_a_result()
    write_config(tmp_path / "elsewhere", url="redis://127.0.0.1:1")
    assert not shows_a_result("--config", "elsewhere")
    assert shows_a_result("--config", "configs")


def test_the_command_line_goes_before_the_environment_and_that_before_the_configuration(filled, tmp_path, monkeypatch):
    write_config(tmp_path / "configs", url="redis://127.0.0.1:1", prefix="house")
    monkeypatch.setenv("STREAMD_REDIS_URL", filled.url)
    assert shows_a_result()
    assert not shows_a_result("--redis-url", "redis://127.0.0.1:1")
    fill(filled, "house")
    assert shows_a_result("--config", "configs")


def test_a_prefix_can_be_given(redis_server):
    fill(redis_server, "house")
    assert shows_a_result("--redis-url", redis_server.url, "--prefix", "house")


def test_a_broken_configuration_is_exit_code_78_with_a_way_out(tmp_path):
    write_config(tmp_path / "configs", url="redis://127.0.0.1:1", wibble=1)
    shown = tail()
    assert shown.exit_code == os.EX_CONFIG
    assert re.search(r"configs/streamd\.yaml:1:\d+: redis\.wibble: unknown key\n.*--redis-url", shown.stderr)


def test_a_configuration_that_is_not_there_is_exit_code_66():
    assert tail("--config", "nowhere").exit_code == os.EX_NOINPUT


def test_a_configuration_without_redis_says_so(tmp_path):
    write_config(tmp_path / "configs")
    shown = tail()
    assert shown.exit_code == os.EX_CONFIG
    assert "not in Redis" in shown.stderr


# --- how it ends


def test_ctrl_c_is_a_quiet_end(filled):
    with run("--redis-url", filled.url) as process:
        client = filled.client()
        wait_until(lambda: any(connection["cmd"] == "xread" for connection in client.client_list()), what="tail reads")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_has_enough_is_a_quiet_end(filled, options):
    client = filled.client()
    with run("--redis-url", filled.url, "--from-start", "door", *options) as process:
        assert process.stdout.readline()
        process.stdout.close()
        wait_until(lambda: client.xadd("streamd:results:door", {"data": encode(result())}) and process.poll() is not None, what="tail ends")
        assert (process.returncode, process.stderr.read()) == (0, "")
