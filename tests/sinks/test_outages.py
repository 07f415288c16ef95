"""How often trouble is mentioned."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from streamd.sinks import outages
from streamd.sinks.outages import Outages


@pytest.fixture
def clock(monkeypatch):
    """A list whose only item is the monotonic time in seconds."""
    now = [1000.0]
    monkeypatch.setattr(outages.time, "monotonic", lambda: now[0])
    return now


def fail(troubles: Outages, place: str = "door", code: str = "OOM", *, queued: int = 0) -> None:
    troubles.failed(place, code=code, reason=f"{place}: {code}", queued=queued)


def test_it_is_said_at_the_beginning_every_30_s_and_at_the_end(clock):
    troubles = Outages("redis")
    with capture_logs() as logs:
        for second in range(70):
            clock[0] = 1000.0 + second
            fail(troubles, queued=second)
        troubles.worked("door", queued=9)
        troubles.worked("door", queued=9)
    assert [(log["event"], log["queued"], log["away_s"]) for log in logs] == [
        ("redis_away", 0, 0.0),
        ("redis_away", 30, 30.0),
        ("redis_away", 60, 60.0),
        ("redis_back", 9, 69.0),
    ]


def test_the_same_trouble_in_many_places_is_said_once(clock):
    troubles = Outages("redis")
    with capture_logs() as logs:
        for number in range(100):
            fail(troubles, f"camera-{number}")
        clock[0] += 30
        fail(troubles, "camera-7")
        for number in range(100):
            troubles.worked(f"camera-{number}", queued=0)
    assert [(log["event"], log.get("places")) for log in logs] == [("redis_away", 1), ("redis_away", 100), ("redis_back", None)]


def test_another_trouble_in_the_same_place_is_said_too(clock):
    troubles = Outages("redis")
    with capture_logs() as logs:
        fail(troubles, code="OOM")
        fail(troubles, code="READONLY")
        assert troubles.reason == "door: READONLY"
        troubles.worked("door", queued=0)
    assert [log["event"] for log in logs] == ["redis_away", "redis_away", "redis_back"]
    assert troubles.reason is None
