"""Why an address could not be opened, in words that say what to do next. Asked only after a failure: a working camera sees one connection.

FFmpeg's errors do not tell a wrong host name from a closed port or a wrong port; the name server and a plain TCP connection do.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from streamd.config.types import CameraConfig
from streamd.errors import NotVideo, SourceError, SourceTimeout, Unauthorized, Unreachable

DEFAULT_PORTS = {"rtsp": 554, "rtsps": 322, "http": 80, "https": 443}
_BUDGET_S = 3.0
"""For all of the questions together."""

T = TypeVar("T")


def explain(error: SourceError, camera: CameraConfig) -> SourceError:
    """A more helpful error for `error`, which opening `camera` raised; or `error` itself."""
    if camera.is_file:
        return error
    if isinstance(error, Unauthorized):
        if camera.username is None:
            return Unauthorized(
                f"{camera.url} wants a user name and password: give --username NAME --password - and it asks for the password"
            )
        return Unauthorized(f"{camera.url} refuses this user name or password (or, where it is right, this user may not see the stream)")
    if isinstance(error, Unreachable | SourceTimeout | NotVideo):
        return _ask_the_network(error, camera)
    return error


def _ask_the_network(error: SourceError, camera: CameraConfig) -> SourceError:
    parts = urlsplit(camera.url)
    host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
    deadline_s = time.monotonic() + _BUDGET_S
    try:
        found = _within(_BUDGET_S, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except OSError:
        return Unreachable(f"there is no host {host}: no name server or hosts file that this machine asks knows it")
    if found is None:
        return Unreachable(f"the name server does not answer when asked for {host}: check this machine's network")
    return _try_port(error, camera, host=host, port=port, address=found[0][4][:2], deadline_s=deadline_s)


def _try_port(
    error: SourceError, camera: CameraConfig, *, host: str, port: int, address: tuple[object, ...], deadline_s: float
) -> SourceError:
    try:
        with socket.create_connection((str(address[0]), port), timeout=max(deadline_s - time.monotonic(), 0.5)) as connection:
            return _listen(error, camera, connection, deadline_s=deadline_s)
    except ConnectionRefusedError:
        return Unreachable(
            f"{host} refuses connections on port {port}: nothing listens there; check the port, and that the camera's stream is on"
        )
    except TimeoutError:
        return SourceTimeout(f"{host} does not answer on port {port}: is it switched on, is the address right, does a firewall drop it?")
    except OSError as network:
        return Unreachable(f"there is no way to {host} from this machine: {(network.strerror or 'no route').lower()}")


def _listen(error: SourceError, camera: CameraConfig, connection: socket.socket, *, deadline_s: float) -> SourceError:
    """The port is open. For RTSP, OPTIONS (RFC 2326, 10.1) needs no authentication, so whoever speaks RTSP answers it."""
    if camera.scheme == "rtsp":
        connection.settimeout(max(deadline_s - time.monotonic(), 0.5))
        try:
            connection.sendall(f"OPTIONS {camera.url} RTSP/1.0\r\nCSeq: 1\r\nUser-Agent: streamd\r\n\r\n".encode())
            answer = connection.recv(64)
        except OSError:
            answer = b""
        if answer.startswith(b"HTTP/"):
            return NotVideo(f"{camera.url} speaks HTTP, not RTSP: this is the port of a web page; RTSP is on 554 as a rule")
        if not answer.startswith(b"RTSP/"):
            if answer:
                return NotVideo(f"{camera.url} does not speak RTSP: something else listens on this port")
            return SourceTimeout(f"{camera.url} is silent: it takes the connection and says nothing")
    if isinstance(error, SourceTimeout):
        return SourceTimeout(
            f"{camera.url} is silent: it takes the connection, but sends no video; is the path right, are too many watching?"
        )
    return error


def _within(timeout_s: float, call: Callable[[], T]) -> T | None:
    """What `call` returns, or raises; None when it takes longer, and is left behind in its thread."""
    outcome: queue.SimpleQueue[tuple[T | None, OSError | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((call(), None))
        except OSError as error:
            outcome.put((None, error))

    threading.Thread(target=run, name="streamd-probe-resolver", daemon=True).start()
    try:
        value, error = outcome.get(timeout=timeout_s)
    except queue.Empty:
        return None
    if error is not None:
        raise error
    return value
