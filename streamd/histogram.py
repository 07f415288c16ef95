"""A histogram of durations with buckets that grow by a constant factor: small, mergeable, and exact to 4.5 per cent at any percentile."""

from __future__ import annotations

import math
from collections.abc import Sequence

_SMALLEST_S = 1e-4
_PER_OCTAVE = 16
BUCKETS = 24 * _PER_OCTAVE
"""Up to 1,606 s; what is longer counts as that, and what is shorter than 0.1 ms as 0.1 ms."""


class DurationHistogram:
    """Counts durations. Not thread-safe."""

    __slots__ = ("counts",)

    def __init__(self, counts: Sequence[int] | None = None) -> None:
        self.counts = [0] * BUCKETS if counts is None else list(counts)

    def add(self, duration_s: float) -> None:
        """Count one duration in seconds."""
        index = math.ceil(math.log2(duration_s / _SMALLEST_S) * _PER_OCTAVE) if duration_s > _SMALLEST_S else 0
        self.counts[min(index, BUCKETS - 1)] += 1

    @property
    def total(self) -> int:
        """How many durations were counted."""
        return sum(self.counts)

    def __sub__(self, earlier: DurationHistogram) -> DurationHistogram:
        """What was counted since `earlier`, a former state of this histogram."""
        return DurationHistogram([now - before for now, before in zip(self.counts, earlier.counts, strict=True)])

    def __add__(self, other: DurationHistogram) -> DurationHistogram:
        return DurationHistogram([a + b for a, b in zip(self.counts, other.counts, strict=True)])

    def percentile_s(self, percent: float) -> float | None:
        """The duration that `percent` of all do not exceed, in seconds, rounded up to its bucket's end; None when nothing was counted."""
        total = self.total
        if total == 0:
            return None
        wanted, seen = total * percent / 100, 0
        for index, count in enumerate(self.counts):
            seen += count
            if seen >= wanted and count:
                return float(_SMALLEST_S * 2.0 ** (index / _PER_OCTAVE))
        return float(_SMALLEST_S * 2.0 ** ((BUCKETS - 1) / _PER_OCTAVE))
