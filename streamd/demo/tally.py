"""What came of each camera: how many results, which label, whether it is true, how late. Pure: time is an argument."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from streamd.demo.plan import DemoCamera
from streamd.records import Label, Result


class CameraSummary(Struct, frozen=True, kw_only=True):
    """One camera's part of the end of `streamd demo --json`."""

    camera: str
    results: int
    first_after_s: float | None
    """From the start of the demo to the camera's first result."""
    label: str | None
    """The best label of most results."""
    is_true: bool
    """It is one that is true of the photograph."""
    latency_p50_ms: float | None
    """From the arrival of a frame to its scores."""


class Tally:
    """Of one camera."""

    def __init__(self, camera: DemoCamera) -> None:
        self.camera = camera
        self.latest: Label | None = None
        self.results = 0
        self.first_after_s: float | None = None
        self._labels: Counter[str] = Counter()
        self._latencies_ms: list[float] = []

    def add(self, result: Result, *, after_s: float) -> None:
        """A result that was read `after_s` seconds after the start."""
        if self.first_after_s is None:
            self.first_after_s = round(after_s, 2)
        self.results += 1
        self.latest = result.labels[0] if result.labels else None
        if self.latest is not None:
            self._labels[self.latest.label] += 1
        self._latencies_ms.append(result.latency_ms.total)

    def is_true(self, label: Label | None) -> bool:
        return label is not None and label.label in self.camera.photograph.labels

    @property
    def latency_p50_ms(self) -> float | None:
        return round(statistics.median(self._latencies_ms), 1) if self._latencies_ms else None

    def summary(self) -> CameraSummary:
        true = sum(self._labels[label] for label in self.camera.photograph.labels)
        return CameraSummary(
            camera=self.camera.name,
            results=self.results,
            first_after_s=self.first_after_s,
            label=self._labels.most_common(1)[0][0] if self._labels else None,
            is_true=2 * true > self.results,
            latency_p50_ms=self.latency_p50_ms,
        )


def all_true(summaries: Sequence[CameraSummary]) -> bool:
    """Whether every camera had results, and most of them were true."""
    return all(summary.is_true for summary in summaries)
