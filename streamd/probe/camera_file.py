"""A camera's YAML file out of what a probe found. It writes references to secrets, never a secret."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path

from streamd.config.scalars import NAME_PATTERN
from streamd.config.types import CameraConfig
from streamd.errors import StreamdError
from streamd.probe import words
from streamd.probe.report import Report
from streamd.redact import HIDDEN, redact_patterns

_HEADER = "# yaml-language-server: $schema=../schema/camera.schema.json\n#\n"


class NotWritten(StreamdError):
    """The camera file cannot be written where it was asked for."""


def check_place(path: Path, *, overwrite: bool) -> None:
    """Raises NotWritten where `path` cannot become a camera file; asked before anything else is done."""
    if path.suffix not in {".yaml", ".yml"}:
        raise NotWritten(f"{path}: a camera's file ends in .yaml")
    if not re.fullmatch(NAME_PATTERN, path.stem):
        raise NotWritten(
            f"{path}: the file's name is the camera's: 1 to 64 letters, digits, `_`, `.` or `-`, and a letter or digit to begin with"
        )
    if path.exists() and not overwrite:
        raise NotWritten(f"{path} exists already; --force overwrites it")
    if not path.parent.is_dir():
        raise NotWritten(f"{path.parent} is no folder; make it first")


def variable(name: str, what: str) -> str:
    """The environment variable for a secret of camera `name`: `FRONT_DOOR_PASSWORD`."""
    stem = re.sub(r"[^A-Z0-9]", "_", name.upper())
    return f"{'CAMERA_' if stem[0].isdigit() else ''}{stem}_{what}"


def camera_yaml(name: str, report: Report, camera: CameraConfig, *, password_variable: str | None) -> tuple[str, list[str]]:
    """The file's text, and the environment variables that it refers to.

    Args:
        name: of the camera.
        report: what was found.
        camera: how it was reached.
        password_variable: where the password was taken from; None makes up a variable, where there is a password.
    """
    url, variables = _url(camera.url, name)
    keys = [f"url: {_text(url, escape=False)}"]
    if camera.username is not None:
        keys.append(f"username: {_text(camera.username)}")
    if camera.password is not None:
        password = password_variable or variable(name, "PASSWORD")
        variables.append(password)
        keys.append(f"password: ${{{password}}} # or ${{file:{name}}}")
    if camera.scheme in {"rtsp", "rtsps"} and camera.transport != "tcp":
        keys.append(f"transport: {camera.transport}")
    rate = report.frame_rate_measured or report.frame_rate_declared
    keys.append(
        f"# fps: {_suggested_fps(rate)} # classify so many frames a second{f' of {rate:g}' if rate else ''}; without it, every frame"
    )
    if camera.is_file:
        keys.append("# realtime: true # pace the file like a live camera")
        keys.append("# loop: true # and start again at its end")
    facts = [line.strip() for line in words.lines(report)[1:] if not line.startswith(("  opened", "  seen"))]
    comments = "".join(f"# {line}\n" for line in ["Found by streamd probe:", *(f"  {fact}" for fact in facts)])
    return _HEADER + comments + "\n" + "\n".join(keys) + "\n", variables


def _url(url: str, name: str) -> tuple[str, list[str]]:
    """The address with `${…}` in place of what looks like a credential in it (`?password=…`), and the variables for them."""
    numbers = count(1)
    variables: list[str] = []

    def reference(_: re.Match[str]) -> str:
        number = next(numbers)
        variables.append(variable(name, "URL_SECRET" if number == 1 else f"URL_SECRET_{number}"))
        return f"${{{variables[-1]}}}"

    hidden = redact_patterns(url)
    escaped = url.replace("${", "$${")
    return (escaped, []) if hidden == url else (re.sub(re.escape(HIDDEN), reference, hidden.replace("${", "$${")), variables)


def _text(value: str, *, escape: bool = True) -> str:
    """A YAML scalar, quoted where plain text could be read as something else; `${` in it stays what it is."""
    value = value.replace("${", "$${") if escape else value
    plain = re.fullmatch(r"[A-Za-z/][\w./:?=&%@+,~$\{}-]*", value, re.ASCII) and not re.fullmatch("(?i)true|false|null", value)
    return value if plain and ": " not in value and not value.endswith(":") else json.dumps(value, ensure_ascii=False)


def _suggested_fps(rate: float | None) -> str:
    return "5" if rate is None or rate > 5 else f"{rate:g}"
