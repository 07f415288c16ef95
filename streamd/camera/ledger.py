"""The counts of one camera's frames, and of its drops since the last result. Several threads write them."""

from __future__ import annotations

import threading

from streamd.types import DropReason, Ledger

_UNWANTED = {DropReason.SAMPLED_OUT, DropReason.CUT}
"""Not drops in a consumer's eyes: the configuration or the file asked for it."""


class CameraLedger:
    """Each received frame is booked out once: as published, or under one DropReason."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Ledger()
        self._missed = 0

    def received(self, count: int = 1) -> None:
        with self._lock:
            self._counts.received += count

    def decoded(self, count: int = 1) -> None:
        with self._lock:
            self._counts.decoded += count

    def published(self, count: int) -> None:
        with self._lock:
            self._counts.published += count

    def dropped(self, reason: DropReason, count: int = 1) -> None:
        if count:
            with self._lock:
                self._counts.dropped[reason] = self._counts.dropped.get(reason, 0) + count
                if reason not in _UNWANTED:
                    self._missed += count

    def take_missed(self) -> int:
        """Drops, sampling excluded, since the last call: what a result reports as `dropped`."""
        with self._lock:
            missed, self._missed = self._missed, 0
            return missed

    def snapshot(self) -> Ledger:
        """A copy, consistent in itself."""
        with self._lock:
            counts = self._counts
            return Ledger(counts.received, counts.decoded, counts.published, dict(counts.dropped))
