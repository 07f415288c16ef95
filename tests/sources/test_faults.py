"""The translation alone; what FFmpeg raises in each situation is shown with real servers in test_network.py."""

import errno
import time

import av.error
import pytest

from streamd.errors import Disconnected, NotFound, NotVideo, SourceError, SourceTimeout, Unauthorized, Unreachable
from streamd.sources import faults

URL = "rtsp://viewer:geheim@door/1"
WHERE = "rtsp://door/1"


def opening(error: Exception, *, after_s: float = 0.0) -> SourceError:
    return faults.of_open(error, where=WHERE, started_s=time.monotonic() - after_s, timeout_s=5)


def reading(error: Exception, *, after_s: float = 0.0) -> SourceError:
    return faults.of_read(error, where=WHERE, waited_s=after_s, timeout_s=5)


def raised(kind: type[av.error.FFmpegError], code: int = -1) -> av.error.FFmpegError:
    """An error as PyAV makes it: the whole address is in it."""
    return kind(code, "it failed", URL)


OPENING = [
    (raised(av.error.HTTPUnauthorizedError), Unauthorized),
    (raised(av.error.HTTPForbiddenError), Unauthorized),
    (raised(av.error.HTTPNotFoundError), NotFound),
    (raised(av.error.FileNotFoundError, errno.ENOENT), NotFound),
    (raised(av.error.IsADirectoryError, errno.EISDIR), NotFound),
    (raised(av.error.ConnectionRefusedError, errno.ECONNREFUSED), Unreachable),
    (raised(av.error.ConnectionResetError, errno.ECONNRESET), Unreachable),
    (raised(av.error.OSError, errno.EHOSTUNREACH), Unreachable),
    (raised(av.error.OSError, errno.ENETUNREACH), Unreachable),
    (raised(av.error.OSError, errno.EIO), Unreachable),
    (raised(av.error.TimeoutError, errno.ETIMEDOUT), SourceTimeout),
    (raised(av.error.ExitError), SourceTimeout),
    (raised(av.error.HTTPServerError), SourceError),
    (raised(av.error.InvalidDataError), NotVideo),
    (raised(av.error.EOFError), NotVideo),
    (ValueError("no codec"), NotVideo),
]


@pytest.mark.parametrize(("error", "meaning"), OPENING, ids=lambda value: getattr(value, "__name__", type(value).__name__))
def test_an_error_while_opening_has_one_meaning(error, meaning):
    assert type(opening(error)) is meaning


@pytest.mark.parametrize("error", [raised(av.error.InvalidDataError), raised(av.error.OSError, errno.EIO), raised(av.error.EOFError)])
def test_after_the_deadline_it_was_the_deadline(error):
    assert type(opening(error, after_s=5)) is SourceTimeout
    assert type(reading(error, after_s=5)) is SourceTimeout
    assert type(opening(error, after_s=4)) is not SourceTimeout
    assert type(reading(error, after_s=4)) is not SourceTimeout


def test_a_refusal_stays_one_however_late_it_comes():
    assert type(opening(raised(av.error.HTTPUnauthorizedError), after_s=60)) is Unauthorized


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (raised(av.error.TimeoutError, errno.ETIMEDOUT), SourceTimeout),
        (raised(av.error.ExitError), SourceTimeout),
        (raised(av.error.HTTPUnauthorizedError), Unauthorized),
        (raised(av.error.ConnectionResetError, errno.ECONNRESET), Disconnected),
        (raised(av.error.InvalidDataError), Disconnected),
        (ValueError("damaged"), Disconnected),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_an_error_while_reading_has_one_meaning(error, meaning):
    assert type(reading(error)) is meaning


@pytest.mark.parametrize("error", [error for error, _ in OPENING], ids=lambda error: type(error).__name__)
def test_what_is_said_names_the_source_and_nothing_of_the_library(error):
    for meaning in (opening(error), reading(error), opening(error, after_s=9), reading(error, after_s=9)):
        assert WHERE in str(meaning)
        assert "geheim" not in str(meaning) + repr(meaning)
        assert "Errno" not in str(meaning)
