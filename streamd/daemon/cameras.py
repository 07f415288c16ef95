"""The current state of every camera, as the daemon knows it: held here, written to the sink, and logged without repetition."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import structlog
from msgspec.structs import replace

from streamd.config.types import Config
from streamd.records import CameraRemoved, CameraState, Event, EventKind, Phase, Record
from streamd.redact import redact

DONE = frozenset({Phase.ENDED, Phase.FAILED})
"""Phases of a file that nobody will read again."""

_FAILURES = frozenset({Phase.DOWN, Phase.REFUSED})
_REPEAT_AFTER_S = 60.0
"""How long the log is silent about the same failure of the same camera."""

log = structlog.get_logger()


class Cameras:
    """Every change goes three ways: the state here, the records to `put`, a line to the log."""

    def __init__(self, config: Config, *, put: Callable[[Record], None], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._put = put
        self._log = _StateLog(clock_s)
        self.states = {name: _connecting(config, name) for name in config.cameras}

    def started(self) -> None:
        """The daemon takes the cameras up."""
        for state in self.states.values():
            self._put(Event(kind=EventKind.STARTED, camera=state.camera, at_ms=_now_ms()))
            self._put(state)

    def take_up(self, config: Config, name: str) -> None:
        """A camera that is new, or that begins again with another configuration."""
        self.states[name] = _connecting(config, name)
        self._put(Event(kind=EventKind.STARTED, camera=name, at_ms=_now_ms()))
        self._put(self.states[name])

    def remove(self, name: str) -> None:
        """It is no longer configured."""
        if self.states[name].phase is not Phase.STOPPED:
            self._now(name, Phase.STOPPED, EventKind.STOPPED)
        del self.states[name]
        self._put(CameraRemoved(camera=name))

    def repeat(self) -> None:
        """Write all states again: a Redis that lost its data has them back, and nothing else changes."""
        for state in self.states.values():
            self._put(state)

    def changed(self, state: CameraState, event: Event | None) -> None:
        """A worker said so."""
        state = replace(state, detail=_redacted(state.detail), source=_redacted(state.source))
        self.states[state.camera] = state
        if event is not None:
            self._put(replace(event, detail=_redacted(event.detail)))
        self._put(state)
        self._log.write(state)

    def worker_died(self, cameras: Iterable[str], *, detail: str, retry_in_s: float) -> None:
        """Their frames stopped; another process will take them up in `retry_in_s` seconds."""
        for camera in cameras:
            self._now(camera, Phase.DOWN, EventKind.WORKER_DIED, reason="worker_died", detail=detail, retry_in_s=retry_in_s)

    def failed(self, cameras: Iterable[str], *, detail: str) -> None:
        """No process can take them up as they are configured."""
        for camera in cameras:
            self._now(camera, Phase.FAILED, EventKind.FAILED, reason="model", detail=detail)

    def stopped(self) -> None:
        """The daemon lets go of all cameras. Their workers may have said so themselves."""
        for camera, state in list(self.states.items()):
            if state.phase not in DONE | {Phase.STOPPED}:
                self._now(camera, Phase.STOPPED, EventKind.STOPPED)

    def unfinished(self, cameras: Iterable[str]) -> list[str]:
        """Those that still have frames to give."""
        return [camera for camera in cameras if self.states[camera].phase not in DONE]

    def count(self, phase: Phase) -> int:
        return sum(state.phase is phase for state in self.states.values())

    def _now(
        self,
        camera: str,
        phase: Phase,
        kind: EventKind,
        *,
        reason: str | None = None,
        detail: str | None = None,
        retry_in_s: float | None = None,
    ) -> None:
        before = self.states[camera]
        now = _now_ms()
        state = replace(before, phase=phase, since_ms=now, session=None, reason=reason, detail=detail, retry_in_s=retry_in_s)
        event = Event(kind=kind, camera=camera, session=before.session, at_ms=now, reason=reason, detail=detail)
        self.changed(state, event)


@dataclass(slots=True)
class _Failure:
    written_s: float = -math.inf
    left_out: int = 0


class _StateLog:
    """One line a change. A camera that fails in the same way again and again gets one line a minute, with the number of those left out."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._shown: dict[str, tuple[Any, ...]] = {}
        self._failures: defaultdict[tuple[str, Phase, str | None], _Failure] = defaultdict(_Failure)
        """By camera, phase and reason."""

    def write(self, state: CameraState) -> None:
        bound = log.bind(camera=state.camera, session=state.session) if state.session else log.bind(camera=state.camera)
        if state.phase is Phase.CONNECTING:
            bound.debug("camera connecting", source=state.source)
        elif state.phase in _FAILURES:
            self._write_failure(bound, state)
        else:
            self._write_news(bound, state)

    def _write_failure(self, bound: Any, state: CameraState) -> None:
        failure = self._failures[state.camera, state.phase, state.reason]
        now = self._clock_s()
        if now - failure.written_s < _REPEAT_AFTER_S:
            failure.left_out += 1
            return
        left_out = {"repeated": failure.left_out} if failure.left_out else {}
        failure.written_s, failure.left_out = now, 0
        self._shown[state.camera] = (state.phase,)
        bound.warning(f"camera {state.phase}", reason=state.reason, detail=state.detail, retry_in_s=state.retry_in_s, **left_out)

    def _write_news(self, bound: Any, state: CameraState) -> None:
        news = (state.phase, state.codec, state.width, state.height, state.decoder)
        if self._shown.get(state.camera) == news:
            return  # nothing was written of what happened in between
        self._shown[state.camera] = news
        fields = {"codec": state.codec, "width": state.width, "height": state.height, "decoder": state.decoder}
        fields |= {"decoder_reason": state.decoder_reason, "reason": state.reason, "detail": state.detail}
        level = "error" if state.phase is Phase.FAILED else "info"
        getattr(bound, level)(f"camera {state.phase}", **{name: value for name, value in fields.items() if value is not None})


def _connecting(config: Config, name: str) -> CameraState:
    source, model = redact(config.cameras[name].url), config.model_of(name)
    return CameraState(camera=name, phase=Phase.CONNECTING, since_ms=_now_ms(), source=source, model=model)


def _redacted(text: str | None) -> str | None:
    return None if text is None else redact(text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
