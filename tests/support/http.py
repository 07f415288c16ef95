"""A real HTTP server of the tests' own that serves clips: with ranges, basic authentication, without an end, and with faults."""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
_PIECE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Served:
    """What one path answers."""

    content: bytes
    username: str | None = None
    """Set: needs this user and `password`, by basic authentication."""
    password: str = ""
    status: int = 200
    """Anything else is answered without content."""
    endless: bool = False
    """The content again and again, as a live stream, without length and ranges."""
    silent: bool = False
    """The request is read and never answered."""
    stall_after_bytes: int | None = None
    """After this much of the content nothing more comes; the connection stays."""


class HttpServer:
    """A context manager that starts and stops it."""

    def __init__(self) -> None:
        self._server = _Server((HOST, 0), _Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, name="http server")

    def add(self, path: str, content: Path | bytes, **behaviour: object) -> str:
        """Serve a file or bytes under `path`, `/door` say; the keywords are the fields of Served. Returns the address."""
        data = content if isinstance(content, bytes) else content.read_bytes()
        self._server.paths[path] = Served(data, **behaviour)  # type: ignore[arg-type]
        return self.url(path)

    def url(self, path: str) -> str:
        """The address of a path, without credentials."""
        return f"http://{HOST}:{self._server.server_address[1]}{path}"

    @property
    def requests(self) -> list[str]:
        """The paths that were asked for, in order."""
        return self._server.requests

    def stop(self) -> None:
        """Break all connections off and listen no more. Nothing happens when it is stopped already."""
        self._server.stopping.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.break_off()
            self._thread.join(10)
            self._server.server_close()  # waits for the requests' threads

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.paths: dict[str, Served] = {}
        self.requests: list[str] = []
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def break_off(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        served = self.server.paths.get(self.path)
        if served is None:
            self._head(404, length=0)
        elif served.silent:
            self.server.stopping.wait()
            self.close_connection = True
        elif not self._may(served):
            self._head(401, length=0, **{"WWW-Authenticate": 'Basic realm="test camera"'})
        elif served.status != 200:
            self._head(served.status, length=0)
        else:
            try:
                self._content(served)
            except OSError:  # the client has left
                self.close_connection = True

    def _content(self, served: Served) -> None:
        data = served.content
        if served.endless:
            self._head(200, length=None)
            while not self.server.stopping.is_set():
                self.wfile.write(data)
            self.close_connection = True
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and int(asked[1]) < len(data):
            first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
            self._head(206, length=last + 1 - first, **{"Content-Range": f"bytes {first}-{last}/{len(data)}"})
            data = data[first : last + 1]
        else:
            self._head(200, length=len(data))
        if served.stall_after_bytes is not None:
            self.wfile.write(data[: served.stall_after_bytes])
            self.server.stopping.wait()
            self.close_connection = True
            return
        for at in range(0, len(data), _PIECE_BYTES):
            self.wfile.write(data[at : at + _PIECE_BYTES])

    def _may(self, served: Served) -> bool:
        expected = base64.b64encode(f"{served.username}:{served.password}".encode()).decode()
        return served.username is None or self.headers.get("Authorization") == f"Basic {expected}"

    def _head(self, status: int, *, length: int | None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""
