"""PyAV's exceptions, translated into SourceError.

PyAV puts the whole address, credentials included, into its messages: none of them passes.
"""

from __future__ import annotations

import errno
import time

import av.error

from streamd.errors import Disconnected, NotFound, NotVideo, SourceError, SourceTimeout, Unauthorized, Unreachable

_UNREACHABLE = {
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.EHOSTDOWN,
    errno.ENETUNREACH,
    errno.EADDRNOTAVAIL,
    errno.EPIPE,
}
_ABSENT = (av.error.HTTPNotFoundError, av.error.FileNotFoundError, av.error.IsADirectoryError)
_REFUSED = (av.error.HTTPUnauthorizedError, av.error.HTTPForbiddenError)
_LATE = (av.error.TimeoutError, av.error.ExitError)


def of_open(error: Exception, *, where: str, started_s: float, timeout_s: float) -> SourceError:
    """What an exception of `av.open` means.

    FFmpeg reports an expired deadline as one of several errors, so the clock decides: after `timeout_s` it was the deadline.

    Args:
        error: as PyAV raised it.
        where: the address without credentials.
        started_s: `time.monotonic()` before the call.
        timeout_s: the deadline that was asked for.
    """
    code = getattr(error, "errno", None)
    meaning: SourceError
    if isinstance(error, _REFUSED):
        meaning = Unauthorized(f"{where} refuses the user name or password")
    elif isinstance(error, _ABSENT):
        meaning = NotFound(f"{where} does not exist: check the path")
    elif code in _UNREACHABLE:
        meaning = Unreachable(f"{where} does not take connections: check host and port, and that the camera is on")
    elif isinstance(error, _LATE) or time.monotonic() - started_s >= 0.95 * timeout_s:
        meaning = SourceTimeout(f"{where} does not answer within {timeout_s:g} s")
    elif isinstance(error, av.error.HTTPError):
        meaning = SourceError(f"{where} answers with an error: {error.strerror}")
    elif code == errno.EIO:
        meaning = Unreachable(f"{where} cannot be reached: check that the host name is right")
    else:
        meaning = NotVideo(f"{where} is not a video that streamd can read")
    return meaning


def of_read(error: Exception, *, where: str, waited_s: float, timeout_s: float) -> SourceError:
    """What an exception while reading packets means. `waited_s` is how long the source was silent."""
    if isinstance(error, _LATE) or waited_s >= 0.95 * timeout_s:
        return SourceTimeout(f"{where} sent nothing for {timeout_s:g} s")
    if isinstance(error, _REFUSED):
        return Unauthorized(f"{where} refuses the user name or password")
    return Disconnected(f"{where} broke off")
