"""Whether a worker that speaks still works: it judges by the counts. Pure; the caller brings the time."""

from __future__ import annotations

from dataclasses import dataclass

from streamd.types import DropReason
from streamd.worker.protocol import Counts

ENOUGH_FRAMES = 64
"""More than decoders and batches hold back by nature, so a slow camera whose frames do not come out yet is no hang."""


@dataclass(frozen=True, slots=True)
class _Point:
    """Sums over a worker's cameras."""

    decoding: tuple[int, ...]
    """Changes when any packet is decoded, or refused by the decoder or before it."""
    scoring: tuple[int, ...]
    """Changes when any batch is inferred or any frame is too old for one; and when a result is written or waits for the sink."""
    received: int
    given_up: int
    """For want of room."""


class Progress:
    """Two halves are watched: decoding while packets come in, and the engine while decoded frames find no room.

    A camera that is down receives nothing, so it cannot look stuck. While the sink is away results go on to gather there, or to be dropped.
    """

    def __init__(self, *, limit_s: float) -> None:
        self._limit_s = limit_s
        self._decoding: tuple[float, _Point] | None = None
        self._scoring: tuple[float, _Point] | None = None

    def counted(self, counts: Counts, now_s: float) -> str | None:
        """Take note; a sentence when nothing has moved for `limit_s` although there was work."""
        point = _point(counts)
        if self._decoding is None or self._scoring is None or point.received < self._decoding[1].received:
            self._decoding = self._scoring = (now_s, point)
            return None
        if point.decoding != self._decoding[1].decoding:
            self._decoding = (now_s, point)
        if point.scoring != self._scoring[1].scoring:
            self._scoring = (now_s, point)
        since_s, before = self._decoding
        if now_s - since_s >= self._limit_s and point.received - before.received >= ENOUGH_FRAMES:
            return f"decoded nothing for {self._limit_s:g} s while frames came in"
        since_s, before = self._scoring
        if now_s - since_s >= self._limit_s and point.decoding != before.decoding and point.given_up - before.given_up >= ENOUGH_FRAMES:
            return f"classified nothing for {self._limit_s:g} s while frames waited"
        return None


def _point(counts: Counts) -> _Point:
    ledgers = counts.ledgers.values()
    dropped = {reason: sum(ledger.dropped.get(reason, 0) for ledger in ledgers) for reason in DropReason}
    by_decoding = [
        count for reason, count in dropped.items() if reason not in {DropReason.OVERLOAD, DropReason.STALE, DropReason.SINK_FULL}
    ]
    published = sum(ledger.published for ledger in ledgers)
    return _Point(
        decoding=(sum(ledger.decoded for ledger in ledgers), *by_decoding),
        scoring=(counts.batches, published, counts.sink_queue, dropped[DropReason.STALE], dropped[DropReason.SINK_FULL]),
        received=sum(ledger.received for ledger in ledgers),
        given_up=dropped[DropReason.OVERLOAD],
    )
