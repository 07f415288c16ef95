"""Records as a worker makes them, for tests of what comes after it."""

from __future__ import annotations

from streamd.records import CameraState, Event, EventKind, Label, Latency, Outcome, Phase, Result

NOW_MS = 1_764_600_000_000


def result(
    camera: str = "door",
    sequence: int = 0,
    *,
    captured_ms: int | None = None,
    labels: tuple[str, ...] = ("cat", "dog"),
    score: float = 0.75,
    total_ms: float = 23.0,
) -> Result:
    """One that `sequence` tells apart; captured 40 ms after the one before, unless said. `score` is that of the first label."""
    return Result(
        camera=camera,
        session="s1",
        sequence=sequence,
        captured_ms=NOW_MS + 40 * sequence if captured_ms is None else captured_ms,
        pts=3600 * sequence,
        time_base="1/90000",
        model="imagenet",
        outcome=Outcome.LABEL if labels else Outcome.NO_CONFIDENT_LABEL,
        labels=[Label(label=label, index=index, score=score / (index + 1)) for index, label in enumerate(labels)],
        latency_ms=Latency(decode=1.5, preprocess=0.5, batch=3.0, infer=18.0, total=total_ms),
        dropped=0,
    )


def event(camera: str = "door", *, kind: EventKind = EventKind.UP, at_ms: int = NOW_MS, detail: str | None = None) -> Event:
    return Event(kind=kind, camera=camera, session="s1", at_ms=at_ms, detail=detail)


def state(camera: str = "door", *, phase: Phase = Phase.UP, since_ms: int = NOW_MS) -> CameraState:
    return CameraState(camera=camera, phase=phase, since_ms=since_ms)
