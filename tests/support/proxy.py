"""A TCP proxy that can lose replies: the server has done what it was asked, and the client never hears of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Self


class Proxy:
    """Between clients and `port` of this machine; use as `async with`. Runs on the loop."""

    def __init__(self, port: int, *, cut_reply: Callable[[bytes], bool]) -> None:
        """`cut_reply(request)` is asked when the server's reply to `request` is there: true breaks the connection instead of passing it."""
        self._to = port
        self._cut_reply = cut_reply
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        server, to_server = await asyncio.open_connection("127.0.0.1", self._to)
        asked = bytearray()

        async def requests() -> None:
            while data := await client.read(1 << 16):
                asked.extend(data)
                to_server.write(data)

        async def replies() -> None:
            while data := await server.read(1 << 16):
                if self._cut_reply(bytes(asked)):
                    return
                asked.clear()
                to_client.write(data)

        ways = [asyncio.create_task(requests()), asyncio.create_task(replies())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for writer in (to_client, to_server):
                writer.transport.abort()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
