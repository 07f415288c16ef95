"""The server: many paths on one loopback port, its own event loop in its own thread, stopped and started again at will.

    with RtspServer() as server:
        door = server.add("/door", clip(".mp4"), username="viewer", password="secret")
        av.open(f"rtsp://viewer:secret@{server.address}/door", options={"rtsp_transport": "tcp"})
        server.change("/door", stall_after=0)     # frozen from now on
        server.change("/door", stall_after=None)  # and well again
        server.stop(); server.start()             # killed, and back on the same port, with the same paths
        assert door.teardowns == 0

Each session begins at the clip's first frame. No TLS, no multicast, no sound.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.rtsp.connection import Connection
from support.rtsp.path import Behaviour, ServedPath
from support.rtsp.track import Track, load_track

HOST = "127.0.0.1"


class RtspServer:
    """A context manager that starts and stops it; all methods may be called from any one thread."""

    def __init__(self) -> None:
        self._paths: dict[str, ServedPath] = {}
        self._tracks: dict[Path, Track] = {}
        self._connections: set[Connection] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        self.port = 0
        """Chosen at the first start, then kept."""
        self.connects = 0
        """TCP connections accepted so far, whatever they asked for."""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """TCP connections that are open now."""
        return len(self._connections)

    def url(self, path: str) -> str:
        """The address of a path, without credentials."""
        return f"rtsp://{self.address}{path}"

    def add(self, path: str, clip: Path, **behaviour: Any) -> ServedPath:
        """Serve a clip (H.264 or HEVC) under `path`, `/door` say; the keywords are the fields of Behaviour."""
        if clip not in self._tracks:
            self._tracks[clip] = load_track(clip)
        self._paths[path] = ServedPath(self._tracks[clip], Behaviour(**behaviour))
        return self._paths[path]

    def change(self, path: str, **behaviour: Any) -> None:
        """Change fields of a path's Behaviour, for running sessions too; what is not named stays."""
        served = self._paths[path]
        served.behaviour = dataclasses.replace(served.behaviour, **behaviour)

    def start(self) -> None:
        """Listen, on the port of before where there was one. Nothing happens while it runs."""
        if self._thread is not None:
            return
        listener = socket.create_server((HOST, self.port), backlog=128)  # SO_REUSEADDR is set
        self.port = listener.getsockname()[1]
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(listener, ready)), name="rtsp server")
        self._thread.start()
        assert ready.wait(10), "the RTSP server did not start"

    def stop(self) -> None:
        """Break all connections off and listen no more, as a killed server does. Nothing happens while it does not run."""
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(10)
            assert not self._thread.is_alive(), "the RTSP server did not stop"
            self._thread = self._loop = None

    def kill_connections(self) -> None:
        """Break all connections off; new ones are taken."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._abort_connections(), self._loop).result(10)

    async def _serve(self, listener: socket.socket, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            connection = Connection(reader, writer, find=self._paths.get)
            self._connections.add(connection)
            self.connects += 1
            try:
                await connection.serve()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                self._connections.discard(connection)
                tasks.discard(task)

        server = await asyncio.start_server(serve_one, sock=listener)
        ready.set()
        await self._stopping.wait()
        server.close()
        await self._abort_connections()
        if tasks:
            await asyncio.wait(set(tasks))
        await server.wait_closed()

    async def _abort_connections(self) -> None:
        for connection in self._connections:
            connection.abort()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
