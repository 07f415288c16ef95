"""When a file's packets are due if the file is to run like a camera. Pure: time is an argument."""

from __future__ import annotations

from streamd.types import Packet, StreamInfo

_DEFAULT_FPS = 25
_MAX_STEP_S = 10.0
"""A larger step between two packets is a jump of the time stamps, and not waited for."""


class Pacer:
    """Follows decode time stamps; counts frames where there are none. After a jump of the stamps it starts anew from the present."""

    def __init__(self, info: StreamInfo) -> None:
        self._tick_s = float(info.time_base)
        self._frame_s = float(1 / info.frame_rate) if info.frame_rate and info.frame_rate <= 1000 else 1 / _DEFAULT_FPS
        self._origin_s: float | None = None
        self._last_s = 0.0

    def due_s(self, packet: Packet, *, now_s: float) -> float:
        """When to pass the packet on, on the clock of `now_s`."""
        stamp = packet.dts if packet.dts is not None else packet.pts
        media_s = self._last_s + self._frame_s if stamp is None else stamp * self._tick_s
        step_s = media_s - self._last_s
        if self._origin_s is None or not 0 <= step_s <= _MAX_STEP_S:
            self._origin_s = now_s - media_s
        self._last_s = media_s
        return self._origin_s + media_s
