"""One client's TCP connection: its requests (RFC 2326), and the session that it plays, interleaved or over UDP."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from support.rtsp.authorization import challenge, is_authorized
from support.rtsp.path import ServedPath
from support.rtsp.session import Carrier, Session

METHODS = "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, GET_PARAMETER, TEARDOWN"
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    455: "Method Not Valid in This State",
    461: "Unsupported Transport",
    501: "Not Implemented",
}


BURST_PACKETS = 16
"""Over UDP: a client's receive buffer is small."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    url: str
    headers: dict[str, str]
    """Names in lower case."""


class Connection:
    """Serves one client until either side closes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, find: Callable[[str], ServedPath | None]) -> None:
        self._reader = reader
        self._writer = writer
        self._find = find
        self._named: set[int] = set()
        self._nonce = secrets.token_hex(16)
        self._session_id = secrets.token_hex(4)
        self._carrier: Carrier | None = None
        self._udp: list[asyncio.DatagramTransport] = []
        self._playing: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while (request := await self._next_request()) is not None:
                    await self._answer(request)
        finally:
            await self._stop()

    def abort(self) -> None:
        """Break the connection off, as a killed server does."""
        self._writer.transport.abort()

    async def _next_request(self) -> Request | None:
        while True:
            first = await self._reader.read(1)
            if first == b"$":  # interleaved RTCP from the client: read and forgotten
                _, length = struct.unpack(">BH", await self._reader.readexactly(3))
                await self._reader.readexactly(length)
                continue
            if not first:
                return None
            lines = (first + await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
            headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            await self._reader.readexactly(int(headers.get("content-length", "0")))
            method, url, *_ = [*lines[0].split(" "), "", ""]
            return Request(method, url, headers)

    async def _answer(self, request: Request) -> None:
        path = self._find(urlsplit(request.url).path.removesuffix("/track1").rstrip("/"))
        if path is not None:
            path.requests[request.method] += 1
            if id(path) not in self._named:
                self._named.add(id(path))
                path.connections += 1
            if path.behaviour.silent:
                return
        if request.method == "OPTIONS":
            self._reply(request, 200, headers={"Public": METHODS})
        elif path is None or path.behaviour.not_found:
            self._reply(request, 404)
        elif path.behaviour.forbidden:
            self._reply(request, 403)
        elif not self._may(request, path):
            scheme = "digest" if path.behaviour.unauthorized else path.behaviour.auth
            self._reply(request, 401, headers={"WWW-Authenticate": challenge(scheme, nonce=self._nonce)})
        else:
            await self._answer_allowed(request, path)
        await self._writer.drain()

    async def _answer_allowed(self, request: Request, path: ServedPath) -> None:
        session = {"Session": f"{self._session_id};timeout=60"}
        match request.method:
            case "DESCRIBE":
                address = self._writer.get_extra_info("sockname")[0]
                body = path.track.sdp(address=address, with_parameter_sets=not path.behaviour.no_parameter_sets_in_sdp)
                headers = {"Content-Base": request.url.rstrip("/") + "/", "Content-Type": "application/sdp"}
                self._reply(request, 200, headers=headers, body=body)
            case "SETUP":
                transport = await self._set_up(request.headers.get("transport", ""), path)
                if transport is None:
                    self._reply(request, 461)
                else:
                    self._reply(request, 200, headers={"Transport": transport, **session})
            case "PLAY" if self._carrier is not None:
                if self._playing is None:
                    playing = Session(path, self._carrier)
                    info = playing.rtp_info(request.url.rstrip("/") + "/track1")
                    self._reply(request, 200, headers={"Range": "npt=0.000-", "RTP-Info": info, **session})
                    self._playing = asyncio.create_task(playing.play(), name=f"session {self._session_id}")
                else:
                    self._reply(request, 200, headers=session)
            case "PAUSE" | "GET_PARAMETER" | "SET_PARAMETER":
                self._reply(request, 200, headers=session)
            case "TEARDOWN":
                await self._stop()
                self._reply(request, 200, headers=session)
            case "PLAY":
                self._reply(request, 455)
            case _:
                self._reply(request, 501)

    def _may(self, request: Request, path: ServedPath) -> bool:
        behaviour = path.behaviour
        if request.method not in {"DESCRIBE", "SETUP", "PLAY"} or (behaviour.username is None and not behaviour.unauthorized):
            return True
        given = request.headers.get("authorization")
        if given is None:
            path.challenged += 1
            return False
        allowed = not behaviour.unauthorized and is_authorized(
            given,
            scheme=behaviour.auth,
            method=request.method,
            nonce=self._nonce,
            username=behaviour.username or "",
            password=behaviour.password,
        )
        path.refused += not allowed
        return allowed

    async def _set_up(self, transport: str, path: ServedPath) -> str | None:
        """The answer's Transport header; None where the client asks for what is not served."""
        await self._stop()
        if interleaved := re.search(r"RTP/AVP/TCP.*interleaved=(\d+)-(\d+)", transport):
            path.transports["tcp"] += 1
            self._carrier = _Interleaved(self._writer, channel=int(interleaved[1]))
            return f"RTP/AVP/TCP;unicast;interleaved={interleaved[1]}-{interleaved[2]}"
        if ports := re.search(r"RTP/AVP(?:/UDP)?;.*client_port=(\d+)-(\d+)", transport):
            path.transports["udp"] += 1
            host = self._writer.get_extra_info("peername")[0]
            local = self._writer.get_extra_info("sockname")[0]
            loop = asyncio.get_running_loop()
            for port in ports.groups():
                datagrams, _ = await loop.create_datagram_endpoint(
                    asyncio.DatagramProtocol, local_addr=(local, 0), remote_addr=(host, int(port))
                )
                self._udp.append(datagrams)
            self._carrier = _Datagrams(self._writer, rtp=self._udp[0], rtcp=self._udp[1])
            own = "-".join(str(datagrams.get_extra_info("sockname")[1]) for datagrams in self._udp)
            return f"RTP/AVP;unicast;client_port={ports[1]}-{ports[2]};server_port={own}"
        return None

    async def _stop(self) -> None:
        if self._playing is not None:
            self._playing.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await self._playing
            self._playing = None
        self._carrier = None
        while self._udp:
            self._udp.pop().abort()

    def _reply(self, request: Request, status: int, *, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        lines = [f"RTSP/1.0 {status} {REASONS[status]}", f"CSeq: {request.headers.get('cseq', '0')}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)


class _Interleaved:
    """RTP inside the RTSP connection (RFC 2326, 10.12). Waits for a client that does not read."""

    def __init__(self, writer: asyncio.StreamWriter, *, channel: int) -> None:
        self._writer = writer
        self._channel = channel

    async def send(self, rtp: list[bytes]) -> None:
        self._writer.write(b"".join(struct.pack(">cBH", b"$", self._channel, len(packet)) + packet for packet in rtp))
        await self._writer.drain()

    async def send_report(self, rtcp: bytes) -> None:
        self._writer.write(struct.pack(">cBH", b"$", self._channel + 1, len(rtcp)) + rtcp)
        await self._writer.drain()

    def drop(self) -> None:
        self._writer.transport.abort()


class _Datagrams:
    """RTP over UDP. Never waits; what the client does not read is lost."""

    def __init__(self, writer: asyncio.StreamWriter, *, rtp: asyncio.DatagramTransport, rtcp: asyncio.DatagramTransport) -> None:
        self._writer = writer
        self._rtp = rtp
        self._rtcp = rtcp

    async def send(self, rtp: list[bytes]) -> None:
        for number, packet in enumerate(rtp, 1):
            self._rtp.sendto(packet)
            if number % BURST_PACKETS == 0:
                await asyncio.sleep(0.001)

    async def send_report(self, rtcp: bytes) -> None:
        self._rtcp.sendto(rtcp)

    def drop(self) -> None:
        self._writer.transport.abort()
