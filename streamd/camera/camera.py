"""A camera's life: one session after the other, for ever; a file's one session. Here is the retry policy for all kinds of sources."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable

import structlog

from streamd.camera.feed import Machine, Up
from streamd.camera.ledger import CameraLedger
from streamd.camera.reconnect import Backoff
from streamd.camera.session import Session
from streamd.config.types import CameraConfig
from streamd.errors import SourceError, StreamdError, Unauthorized
from streamd.records import CameraState, Event, EventKind, Phase

log = structlog.get_logger(__name__)

OnChange = Callable[[CameraState, Event | None], None]
_EVENT_OF = {
    Phase.UP: EventKind.UP,
    Phase.DOWN: EventKind.DOWN,
    Phase.REFUSED: EventKind.REFUSED,
    Phase.ENDED: EventKind.ENDED,
    Phase.FAILED: EventKind.FAILED,
    Phase.STOPPED: EventKind.STOPPED,
}
_SETTLE_POLL_S = 0.02


class Camera:
    """`run` ends when a file has ended or failed, or when `stop` is called. Every change of state is told to `on_change`."""

    def __init__(self, name: str, config: CameraConfig, *, model: str, machine: Machine, on_change: OnChange) -> None:
        self.name = name
        self.ledger = CameraLedger()
        self.config = config
        self._model = model
        self._machine = machine
        self._on_change = on_change
        self._stop = asyncio.Event()
        self._backoff = Backoff(config.reconnect)
        self._log = log.bind(camera=name)

    def stop(self) -> None:
        """End the session; `run` returns when what it received is through."""
        self._stop.set()

    async def run(self, *, start_after_s: float = 0.0) -> None:
        """See the class. `start_after_s` keeps the cameras of a worker from connecting all at once."""
        await self._sleep(start_after_s)
        while not self._stop.is_set():
            session = Session(
                self.name,
                self.config,
                model=self._model,
                machine=self._machine,
                ledger=self.ledger,
                on_up=lambda up: self._up(session.id, up),  # noqa: B023 - the session of this round, on purpose
            )
            self._change(Phase.CONNECTING, session=session.id)
            try:
                await session.run(self._stop)
            except StreamdError as error:
                if self._stop.is_set():
                    break
                if self.config.is_file:
                    await self._settled()
                    self._change(Phase.FAILED, session=session.id, error=error)
                    return
                await self._wait_after(error, session)
            else:
                await self._settled()
                if not self._stop.is_set():
                    self._change(Phase.ENDED, session=session.id)
                    return
        await self._settled()
        self._change(Phase.STOPPED)

    def _up(self, session: str, up: Up) -> None:
        if up.decoder_reason:
            self._log.warning("decoder_fallback", session=session, decoder=up.decoder, reason=up.decoder_reason)
        self._change(Phase.UP, session=session, up=up)

    async def _wait_after(self, error: StreamdError, session: Session) -> None:
        lasted_s = 0.0 if session.up_at_s is None else time.monotonic() - session.up_at_s
        refused = isinstance(error, Unauthorized)
        wait_s = self._backoff.next_wait_s(lasted_s=lasted_s, refused=refused, chance=random.random())  # noqa: S311 - not for secrets
        self._change(Phase.REFUSED if refused else Phase.DOWN, session=session.id, error=error, retry_in_s=round(wait_s, 2))
        await self._sleep(wait_s)

    async def _sleep(self, seconds: float) -> None:
        """Wait, but no longer than until `stop`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    async def _settled(self) -> None:
        """Until no frame of this camera is in flight. The engine always moves, so this ends; a shutdown's deadline cancels it."""
        while self.ledger.snapshot().in_flight > 0:  # noqa: ASYNC110 - several threads book; a signal from each frame would cost more
            await asyncio.sleep(_SETTLE_POLL_S)

    def _change(
        self,
        phase: Phase,
        *,
        session: str | None = None,
        up: Up | None = None,
        error: StreamdError | None = None,
        retry_in_s: float | None = None,
    ) -> None:
        now_ms = time.time_ns() // 1_000_000
        reason = None if error is None else (error.reason if isinstance(error, SourceError) else "decoder")
        detail = None if error is None else str(error)
        state = CameraState(
            camera=self.name,
            phase=phase,
            since_ms=now_ms,
            session=session,
            reason=reason,
            detail=detail,
            retry_in_s=retry_in_s,
            source=self.config.url,
            codec=up.info.codec if up else None,
            width=up.width if up else None,
            height=up.height if up else None,
            decoder=up.decoder if up else None,
            decoder_reason=up.decoder_reason if up else None,
            model=self._model,
        )
        kind = _EVENT_OF.get(phase)
        event = None if kind is None else Event(kind=kind, camera=self.name, session=session, at_ms=now_ms, reason=reason, detail=detail)
        self._on_change(state, event)
