"""Which frames of a stream are wanted, by time and not by count: a camera's frame rate is seldom what it says. Pure."""

from __future__ import annotations

_TOLERANCE_S = 0.0005
"""Matroska and FLV round time stamps to milliseconds: a frame may seem to come this much before its time."""


class TimeSampler:
    """Picks `fps` frames a second on a fixed grid of media time, so that the average rate is right whatever the stream's own."""

    def __init__(self, fps: float | None) -> None:
        self._period_s = None if fps is None else 1 / fps
        self._due_s: float | None = None

    def wants(self, time_s: float) -> bool:
        """Whether the frame shown at `time_s` is wanted. A jump of the clock, back or ahead, begins a new grid."""
        if self._period_s is None:
            return True
        if self._due_s is None or not -2 * self._period_s <= time_s - self._due_s <= 10 * self._period_s:
            self._due_s = time_s
        if time_s < self._due_s - _TOLERANCE_S:
            return False
        # One place on the grid may be made up for. Without it a stream that jitters about the wanted rate loses every frame that comes a
        # little early, and the place after each that comes late.
        self._due_s = max(self._due_s + self._period_s, time_s - self._period_s)
        return True
