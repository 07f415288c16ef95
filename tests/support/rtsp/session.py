"""One playing session: RTP packets of a path's clip, paced, looped, and spoilt as the path's behaviour says."""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
import time
from collections.abc import Iterator
from typing import Protocol

from support.rtsp.path import ServedPath
from support.rtsp.track import CLOCK_HZ, PAYLOAD_TYPE, AccessUnit

NTP_EPOCH_S = 2_208_988_800
"""From 1900 to 1970."""
SENDER_REPORT_INTERVAL_S = 2.0
END_PAUSE_S = 0.1
_RTP_HEADER = struct.Struct(">BBHII")


class Carrier(Protocol):
    """How RTP and RTCP packets reach the client."""

    async def send(self, rtp: list[bytes]) -> None: ...

    async def send_report(self, rtcp: bytes) -> None: ...

    def drop(self) -> None: ...


class Session:
    """From PLAY to TEARDOWN, or to the connection's end."""

    def __init__(self, path: ServedPath, carrier: Carrier) -> None:
        self._path = path
        self._carrier = carrier
        self._random = random.Random(path.behaviour.seed)
        self._ssrc = self._random.getrandbits(32)
        self._sequence = self._random.getrandbits(16)
        self._time_offset = self._random.getrandbits(31)
        self._frames = 0
        self._packets = 0
        self._bytes = 0

    def rtp_info(self, url: str) -> str:
        """The RTP-Info header's value (RFC 2326, 12.33) for the packets that `play` sends first."""
        _, pts, _ = next(self._access_units())
        return f"url={url};seq={self._sequence};rtptime={self._rtp_time(pts)}"

    async def play(self) -> None:
        """Send until cancelled, or to the end of a clip that does not loop."""
        path = self._path
        path.sessions += 1
        try:
            started_s = time.monotonic()
            report_s = started_s
            first: int | None = None
            for unit, pts, dts in self._access_units():
                first = dts if first is None else first
                behaviour = path.behaviour
                if behaviour.speed > 0:
                    await asyncio.sleep(max(0.0, started_s + (dts - first) / CLOCK_HZ / behaviour.speed - time.monotonic()))
                if behaviour.drop_after is not None and self._frames >= behaviour.drop_after:
                    self._carrier.drop()
                    return
                if behaviour.no_rtp or (behaviour.stall_after is not None and self._frames >= behaviour.stall_after):
                    await asyncio.sleep(0.02)  # the clip goes on unseen
                    continue
                if behaviour.sender_reports and time.monotonic() >= report_s:
                    await self._carrier.send_report(self._sender_report(pts))
                    report_s += SENDER_REPORT_INTERVAL_S
                await self._carrier.send(self._packetize(unit, pts))
                self._frames += 1
                path.frames_sent += 1
            await asyncio.sleep(END_PAUSE_S)  # over UDP, RTCP may overtake
            # An empty receiver report and BYE (RFC 3550, 6.1): FFmpeg ignores a BYE that comes alone.
            await self._carrier.send_report(struct.pack(">BBHIBBHI", 0x80, 201, 1, self._ssrc, 0x81, 203, 1, self._ssrc))
        finally:
            path.sessions -= 1

    def _access_units(self) -> Iterator[tuple[AccessUnit, int, int]]:
        """Each access unit with its pts and dts in 90 kHz since the session began, round by round."""
        track = self._path.track
        units = track.access_units
        skip = 0
        if self._path.behaviour.starts_mid_gop:
            skip = next((n for n, unit in enumerate(units) if n >= 2 and not unit.is_keyframe and units[n - 2].is_keyframe), 1)
        for turn in itertools.count():
            for unit in units[skip:]:
                yield unit, unit.pts + turn * track.duration, unit.dts + turn * track.duration
            skip = 0
            if not self._path.behaviour.loop:
                return

    def _packetize(self, unit: AccessUnit, pts: int) -> list[bytes]:
        path, behaviour = self._path, self._path.behaviour
        payloads = unit.bare_payloads if behaviour.no_parameter_sets_in_band else unit.payloads
        packets = []
        for number, payload in enumerate(payloads, 1):
            sequence = self._sequence
            self._sequence = (sequence + 1) & 0xFFFF
            if behaviour.lose and self._random.random() < behaviour.lose:
                path.packets_lost += 1
                continue
            content = self._random.randbytes(len(payload)) if behaviour.garbage else payload
            marker = 0x80 if number == len(payloads) else 0
            packets.append(_RTP_HEADER.pack(0x80, marker | PAYLOAD_TYPE, sequence, self._rtp_time(pts), self._ssrc) + content)
            self._packets += 1
            self._bytes += len(content)
        path.packets_sent += len(packets)
        return packets

    def _rtp_time(self, pts: int) -> int:
        return (self._time_offset + pts) & 0xFFFFFFFF

    def _sender_report(self, pts: int) -> bytes:
        """RFC 3550, 6.4.1, without report blocks."""
        now_s = time.time() + NTP_EPOCH_S
        seconds = int(now_s)
        fraction = int((now_s - seconds) * 2**32)
        counts = (self._rtp_time(pts), self._packets & 0xFFFFFFFF, self._bytes & 0xFFFFFFFF)
        return struct.pack(">BBHIIIIII", 0x80, 200, 6, self._ssrc, seconds & 0xFFFFFFFF, fraction, *counts)
