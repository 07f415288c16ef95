"""The daemon as a process of its own, with fake workers, and what can be seen of it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "daemon_over_fakes.py"
DEADLINE_S = 20.0


def eventually(probe, what):
    """The first true value of `probe()`."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if value := probe():
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {DEADLINE_S:g} s: {what}")


def is_gone(pid):
    """A zombie that init has not collected yet is gone too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class RunningDaemon:
    """A daemon that was started; files in `folder` say what its workers and its sink were told."""

    def __init__(self, folder, cameras, *, workers, timing, sink, killable, shutdown_timeout, env):
        self.folder = folder
        config = {
            "models": {"imagenet": {"torchvision": "resnet50"}},
            "engine": {"device": "cpu", "workers": workers, "shutdown_timeout": shutdown_timeout},
        }
        (folder / "configs" / "cameras").mkdir(parents=True)
        self.write_main(config)
        for name in cameras:
            self.write_camera(name)
        given = {"folder": str(folder), "timing": {"first_wait": 0.05, **timing}, "sink": sink, "killable": killable}
        self._log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(given)],
            stderr=self._log,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **env},
        )

    def write_main(self, config):
        (self.folder / "configs" / "streamd.yaml").write_text(json.dumps(config))  # JSON is YAML

    def write_camera(self, name, **keys):
        camera = {"url": "rtsp://door.example/1", "username": "cam", "password": "S3cr@t", **keys}
        beside = self.camera_file(name).with_suffix(".tmp")  # as editors do
        beside.write_text(json.dumps(camera))
        beside.rename(self.camera_file(name))

    def camera_file(self, name):
        return self.folder / "configs" / "cameras" / f"{name}.yaml"

    @property
    def updates(self):
        return self._facts("updates")

    def _facts(self, name):
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []

    @property
    def lives(self):
        return self._facts("lives")

    @property
    def stops(self):
        return self._facts("stops")

    @property
    def orphans(self):
        return self._facts("orphans")

    @property
    def log(self):
        return self._facts("log")

    def records(self, kind=None, camera=None):
        return [
            record
            for record in self._facts("records")
            if (kind is None or record["type"] == kind) and (camera is None or record.get("camera") == camera)
        ]

    def events(self, camera=None):
        return [record["kind"] for record in self.records("Event", camera)]

    def phases(self, camera):
        return [record["phase"] for record in self.records("CameraState", camera)]

    def wait_until_phase(self, phase, *cameras, times=1):
        for camera in cameras:
            eventually(lambda camera=camera: self.phases(camera).count(phase) >= times, f"{camera} {phase}; log: {self.log}")

    def wait_for_lives(self, count, worker=None):
        return eventually(
            lambda: len(lives := [life for life in self.lives if worker in (None, life["worker"])]) >= count and lives,
            f"{count} lives of {worker}; log: {self.log}",
        )

    def wait_for_log(self, event):
        return eventually(lambda: next((line for line in self.log if line["event"] == event), None), f"{event!r} in the log: {self.log}")

    def signal(self, number):
        self.process.send_signal(number)

    def exit_code(self):
        return self.process.wait(DEADLINE_S)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()
        left = [life["pid"] for life in self.lives if not is_gone(life["pid"])]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left


@pytest.fixture
def start_daemon(tmp_path):
    """Starts a daemon with cameras of these names; at the end it is stopped, and none of its workers may be left."""
    running = []

    def start(*cameras, workers=1, timing=None, sink="good", killable=True, shutdown_timeout=5.0, env=None):
        options = {"timing": timing or {}, "sink": sink, "killable": killable, "shutdown_timeout": shutdown_timeout, "env": env or {}}
        daemon = RunningDaemon(tmp_path, cameras, workers=workers, **options)
        running.append(daemon)
        return daemon

    yield start
    left = [pid for daemon in running for pid in daemon.end()]
    assert not left, "workers outlived their daemon"


@pytest.fixture
def systemd(tmp_path):
    """The other end of $NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "notify"))
        server.setblocking(False)
        yield Systemd(server, str(tmp_path / "notify"))


class Systemd:
    def __init__(self, server, address):
        self._server = server
        self.address = address
        self._messages = []

    @property
    def messages(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                self._messages.append(self._server.recv(4096).decode())
        return self._messages

    def wait_for(self, message, times=1):
        eventually(lambda: self.messages.count(message) >= times, f"{message} from the daemon, got {self.messages}")


@pytest.fixture(name="eventually")
def _eventually():
    return eventually


@pytest.fixture(name="is_gone")
def _is_gone():
    return is_gone
