"""`streamd probe`: what an address gives, or what is wrong with it; and a camera file ready for use."""

from __future__ import annotations

import enum
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from streamd.cli import app

if TYPE_CHECKING:
    from streamd.config import CameraConfig
    from streamd.errors import StreamdError
    from streamd.probe import Limits, Report


class Transport(enum.StrEnum):
    TCP = "tcp"
    UDP = "udp"


@app.command()
def probe(
    address: str = typer.Argument(help="rtsp://, rtsps://, http://, https://, or the path of a file.", metavar="URL"),
    username: str | None = typer.Option(None, help="User of the camera.", show_default=False),
    password: str | None = typer.Option(
        None, metavar="-", help="`--password -` asks for it, or reads a line from standard input.", show_default=False
    ),
    password_env: str | None = typer.Option(None, metavar="VAR", help="Environment variable that holds the password.", show_default=False),
    password_file: Path | None = typer.Option(None, metavar="FILE", help="File that holds the password.", show_default=False),
    transport: Transport = typer.Option(Transport.TCP, help="How RTSP carries the video."),
    timeout: float = typer.Option(10.0, min=0.1, help="Seconds to wait for the connection, and for the first packet."),
    seconds: float = typer.Option(5.0, min=0.1, help="Seconds to watch a live stream at most; two key frames end it earlier."),
    json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    write: Path | None = typer.Option(None, metavar="FILE", help="Write a camera file, cameras/NAME.yaml.", show_default=False),
    force: bool = typer.Option(False, "--force", help="Overwrite that file."),
) -> None:
    """Connect, and say what is there: codec, size, rates, key frames, which decoder takes it.

    Exit code 0 where there is video that can be decoded; 65 where there is something else; 66 for no such path or file; 69 where nothing
    answers in time; 70 for an error of streamd's own; 73 where the camera file cannot be written; 77 for a wrong user or password.
    """
    from streamd.probe import Limits
    from streamd.probe.camera_file import NotWritten, check_place

    given = [option for option in (password, password_env, password_file) if option is not None]
    if len(given) > 1:
        raise typer.BadParameter("give the password in one way only: --password -, --password-env or --password-file")
    camera = _camera(
        address,
        username=username,
        password=_password(password, variable=password_env, file=password_file),
        transport=transport,
        timeout=timeout,
    )
    try:
        if write is not None:
            check_place(write, overwrite=force)
    except NotWritten as error:
        _say_error(str(error))
        raise typer.Exit(os.EX_CANTCREAT) from None
    code, report = _look(camera, Limits(answer_s=timeout, watch_s=seconds), as_json=json)
    if report is not None and write is not None:
        code = _write(write, report, camera, password_variable=password_env)
    _leave(code)


def _password(dash: str | None, *, variable: str | None, file: Path | None) -> str | None:
    if variable is not None:
        if variable not in os.environ:
            raise typer.BadParameter(f"the environment has no {variable}", param_hint="--password-env")
        return os.environ[variable]
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise typer.BadParameter(f"{file} cannot be read: {reason}", param_hint="--password-file") from None
    if dash is None:
        return None
    if dash != "-":
        raise typer.BadParameter(
            "others can read command lines: write --password - and it is asked for, or use --password-env or --password-file",
            param_hint="--password",
        )
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, err=True))
    return sys.stdin.readline().removesuffix("\n").removesuffix("\r")


def _camera(text: str, *, username: str | None, password: str | None, transport: Transport, timeout: float) -> CameraConfig:
    from streamd.config import CameraConfig
    from streamd.probe.address import split
    from streamd.redact import add_secrets

    try:
        address = split(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="URL") from None
    if address.username is not None and (username is not None or password is not None):
        raise typer.BadParameter("the address holds a user name; give it there or with --username, not both", param_hint="URL")
    username, password = (username, password) if address.username is None else (address.username, address.password)
    add_secrets(filter(None, [password]))
    return CameraConfig.model_validate(
        {
            "url": address.url,
            "username": username,
            "password": password,
            "transport": transport.value,
            "connect_timeout": timeout,
            "first_packet_timeout": timeout,
            "silence_timeout": timeout,
        }
    )


def _look(camera: CameraConfig, limits: Limits, *, as_json: bool) -> tuple[int, Report | None]:
    """Exit code and report; what was found, or what is wrong, is printed."""
    import msgspec

    from streamd.errors import DecoderUnavailable, SourceError
    from streamd.probe import probe as look_at
    from streamd.probe.report import Fault
    from streamd.probe.words import lines
    from streamd.redact import redact

    try:
        report = look_at(camera, limits)
    except (SourceError, DecoderUnavailable) as error:
        if as_json:
            word = error.reason if isinstance(error, SourceError) else "no_decoder"
            typer.echo(msgspec.json.encode(Fault(address=redact(camera.url), error=word, message=redact(str(error)))))
        else:
            _say_error(str(error))
        return _exit_code(error), None
    except Exception as error:  # noqa: BLE001 - a traceback could show the address with its password
        _say_error(f"internal error: {type(error).__name__}: {error}")
        return os.EX_SOFTWARE, None
    typer.echo(msgspec.json.encode(report) if as_json else "\n".join(lines(report)))
    return 0, report


def _exit_code(error: StreamdError) -> int:
    from streamd.errors import DecoderUnavailable, NoFrames, NotFound, NotVideo, Unauthorized

    match error:
        case Unauthorized():
            return os.EX_NOPERM
        case NotFound():
            return os.EX_NOINPUT
        case NotVideo() | NoFrames() | DecoderUnavailable():
            return os.EX_DATAERR
        case _:
            return os.EX_UNAVAILABLE


def _write(path: Path, report: Report, camera: CameraConfig, *, password_variable: str | None) -> int:
    from streamd.probe.camera_file import camera_yaml

    text, variables = camera_yaml(path.stem, report, camera, password_variable=password_variable)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        _say_error(f"{path} cannot be written: {error.strerror}")
        return os.EX_CANTCREAT
    needs = f"; it needs {' and '.join(variables)} in the environment of streamd run" if variables else ""
    typer.echo(f"wrote {path}{needs}", err=True)
    return 0


def _say_error(text: str) -> None:
    from streamd.redact import redact

    typer.echo(redact(text), err=True)


def _leave(code: int) -> NoReturn:
    """Exit, also where a native call still holds the reader's thread: the interpreter might wait for it."""
    from streamd.probe.watch import READER

    if any(thread.name == READER for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise typer.Exit(code)
