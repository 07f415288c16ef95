"""GStreamer's RTSP server, an implementation that is not ours, in a process of its own: mounts `/cam0`, `/cam1`, … on one loopback port."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

SYSTEM_PYTHON = "/usr/bin/python3"
PACKAGES = "gir1.2-gst-rtsp-server-1.0 python3-gi gstreamer1.0-plugins-base gstreamer1.0-plugins-{good,bad,ugly}"
_PROBE = """
import gi
for name in ("Gst", "GstRtsp", "GstRtspServer"):
    gi.require_version(name, "1.0")
from gi.repository import Gst, GstRtspServer
Gst.init(None)
missing = [name for name in ("qtdemux", "tsdemux", "h264parse", "x264enc", "rtph264pay") if not Gst.ElementFactory.find(name)]
raise SystemExit(f"without {missing}" if missing else 0)
"""
_DEMUXERS = {".mp4": "qtdemux", ".mov": "qtdemux", ".ts": "tsdemux", ".mkv": "matroskademux"}
_TEST_PICTURES = (
    "videotestsrc is-live=true ! video/x-raw,width=320,height=240,framerate=25/1 "
    "! x264enc tune=zerolatency speed-preset=ultrafast key-int-max=25"
)


@cache
def missing() -> str:
    """What is not installed, in words; empty where all is there."""
    if not Path(SYSTEM_PYTHON).exists():
        return f"{SYSTEM_PYTHON} is not there"
    probe = subprocess.run([SYSTEM_PYTHON, "-c", _PROBE], check=False, capture_output=True, text=True, timeout=30)
    if probe.returncode == 0:
        return ""
    said = probe.stderr.strip().splitlines()
    return f"GStreamer's RTSP server is not installed ({said[-1] if said else 'it fails'}): apt-get install {PACKAGES}"


class GstServer:
    """A context manager that starts and stops it.

    A file plays once for each session, in real time, and then says BYE; `None` instead of a file serves moving test pictures for ever.
    """

    def __init__(self, *clips: Path | None, username: str | None = None, password: str = "") -> None:
        """Serve `clips` (H.264 in .mp4, .mov, .mkv or .ts) as `/cam0`, `/cam1`, …; with `username`, behind digest authentication."""
        self._clips: Sequence[Path | None] = clips
        self._username = username
        self._password = password
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        """Chosen at the first start, then kept."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, number: int = 0) -> str:
        """The address of a mount, without credentials."""
        return f"rtsp://{self.address}/cam{number}"

    def start(self) -> None:
        """Start it, on the port of before where there was one. Nothing happens while it runs."""
        if self._process is not None:
            return
        program = Path(__file__).with_name("gst_server.py")
        self._process = subprocess.Popen([SYSTEM_PYTHON, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        mounts = {f"/cam{number}": _launch_line(clip) for number, clip in enumerate(self._clips)}
        wanted = {"port": self.port, "mounts": mounts, "username": self._username, "password": self._password}
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        word, _, port = self._process.stdout.readline().strip().partition(" ")
        if word != "ready":
            self.kill()
            raise AssertionError("GStreamer's RTSP server did not start")
        self.port = int(port)

    def kill(self) -> None:
        """End it at once (SIGKILL); its connections break. Nothing happens while it does not run."""
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()


def _launch_line(clip: Path | None) -> str:
    video = _TEST_PICTURES if clip is None else f"filesrc location={shlex.quote(str(clip))} ! {_DEMUXERS[clip.suffix]}"
    return f"( {video} ! h264parse ! rtph264pay name=pay0 pt=96 config-interval=-1 )"
