"""The configuration of a running daemon is changed: real cameras, workers, models and Redis."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from streamd.records import EventKind

LIVE = {"max_age": 30, "silence_timeout": 5, "reconnect": {"initial": 0.2, "max": 1, "refused": 2}}


@pytest.fixture(scope="module")
def changes(new_daemon, new_redis, reader, module_rtsp_server, clip):
    """Three cameras; one is added, one changed, one removed, then one broken. `north` is never touched."""
    server = module_rtsp_server
    for number, name in enumerate(("north", "east", "south", "west")):
        server.add(f"/reload-{name}", clip(".mp4", camera=number, frames=100))
    cameras = {name: {"url": server.url(f"/reload-{name}"), "decode": "keyframes", **LIVE} for name in ("north", "east", "south", "west")}
    west = cameras.pop("west")
    cameras["north"]["decode"] = "all"
    redis = new_redis()
    read = reader(redis)
    daemon = new_daemon(cameras, redis={"url": redis.url})
    folder = daemon._folder / "cameras"
    daemon.wait(lambda: all(read.count(name) >= 1 for name in cameras), "a result of each camera")
    workers = daemon.workers()
    east = list(read.sessions("east"))
    (folder / "west.yaml").write_text(json.dumps(west))
    (folder / "south.yaml").unlink()
    (folder / "east.yaml").write_text(json.dumps({**cameras["east"], "fps": 5}))
    daemon.wait(lambda: read.count("west") >= 1 and "south" not in read.phases(), "one added, one removed")
    daemon.wait(lambda: set(read.sessions("east")) - set(east), "one changed")
    (folder / "north.yaml").write_text("url: [")
    daemon.wait(lambda: "reload_failed" in [entry.record.kind for entry in read.events()], "the broken edit is reported")
    already = read.count("north")
    daemon.wait(lambda: read.count("north") > already, "it goes on")
    same = daemon.workers() == workers
    code, _ = daemon.terminate()
    return SimpleNamespace(
        code=code,
        same_workers=same,
        events=[entry.record for entry in read.events()],
        north=[entry.record for entry in read.results("north")],
        south=read.count("south"),
        states=read.states(),
        daemon=daemon,
    )


def test_the_camera_that_nobody_touched_has_one_session_and_lost_nothing(changes):
    assert len({result.session for result in changes.north}) == 1
    sequences = sorted(result.sequence for result in changes.north)
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
    assert [event.kind for event in changes.events if event.camera == "north"] == [EventKind.STARTED, EventKind.UP, EventKind.STOPPED]
    assert changes.same_workers


def test_a_removed_camera_has_no_state_and_keeps_its_results(changes):
    assert set(changes.states) == {"north", "east", "west"}
    assert changes.south >= 1


def test_a_broken_edit_is_reported_and_ends_nothing(changes):
    (failed,) = {event.detail for event in changes.events if event.kind is EventKind.RELOAD_FAILED}
    assert "north.yaml:1" in failed
    assert changes.code == 0
    assert "Traceback" not in changes.daemon.stderr
