"""Says in the log that a sink cannot write: once when it begins, every 30 s while it lasts, and once when it is over."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import structlog

REMIND_S = 30.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Outage:
    reason: str
    since_s: float
    said_s: float
    places: set[str] = field(default_factory=set)


class Outages:
    """Failures of one sink by their code, so that a full Redis is one line and not one for each camera."""

    def __init__(self, sink: str) -> None:
        """`sink` begins the names of the events: `redis_away`, `redis_back`."""
        self._away = f"{sink}_away"
        self._back = f"{sink}_back"
        self._outages: dict[str, _Outage] = {}
        self._code_of: dict[str, str] = {}

    @property
    def reason(self) -> str | None:
        """Why something cannot be written now; None where all is well."""
        return next((outage.reason for outage in self._outages.values()), None)

    def failed(self, place: str, *, code: str, reason: str, queued: int) -> None:
        """`place` is what cannot be written: a key, or the sink's address. `reason` holds no credential."""
        now_s = time.monotonic()
        if self._code_of.get(place, code) != code:
            self._leave(place)
        self._code_of[place] = code
        outage = self._outages.get(code)
        if outage is None:
            outage = self._outages[code] = _Outage(reason, since_s=now_s, said_s=float("-inf"))
        outage.reason = reason
        outage.places.add(place)
        if now_s - outage.said_s >= REMIND_S:
            outage.said_s = now_s
            away_s = round(now_s - outage.since_s, 1)
            log.warning(self._away, place=place, places=len(outage.places), reason=reason, queued=queued, away_s=away_s)

    def worked(self, place: str, *, queued: int) -> None:
        """Costs nothing where nothing was wrong."""
        if place in self._code_of:
            over = self._leave(place)
            if over is not None:
                away_s = round(time.monotonic() - over.since_s, 1)
                log.warning(self._back, place=place, was=over.reason, queued=queued, away_s=away_s)

    def _leave(self, place: str) -> _Outage | None:
        """The outage that is over because `place` was the last one in it."""
        code = self._code_of.pop(place)
        outage = self._outages[code]
        outage.places.discard(place)
        return self._outages.pop(code) if not outage.places else None
