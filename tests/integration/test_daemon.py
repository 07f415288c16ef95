"""The whole daemon as its users run it: `streamd run` with real cameras, files, models and Redis.

Starting a daemon takes seconds, so each scenario is played once, and its tests look at what it left. No frame here is cut short by age:
the machine may be slow.
"""

from __future__ import annotations

import json
import os
import signal
import time
from itertools import pairwise
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from support.wait import wait_until

from streamd.records import EventKind, Phase, Result

CAMERAS = ("north", "east", "south", "west")
PASSWORD = "c4nary-of-n0rth/@%"
WRONG_PASSWORD = "c4nary-th4t-is-wr0ng"
SAMPLED = 13
"""Of 25 frames a second two are classified: one in 12 or 13."""
LIVE = {
    "fps": 2,
    "max_age": 30,
    "silence_timeout": 1,
    "reconnect": {"initial": 0.2, "max": 1, "refused": 2},
}


@pytest.fixture(scope="module")
def street(new_daemon, new_redis, reader, module_rtsp_server, clip):
    """Four cameras and one with a wrong password; the server goes and comes back, the worker is killed, and then comes SIGTERM."""
    server, seen = module_rtsp_server, SimpleNamespace()
    paths = {
        name: server.add(f"/{name}", clip(".mp4", camera=number, frames=100), username="viewer", password=PASSWORD)
        for number, name in enumerate(CAMERAS)
    }
    locked = server.add("/locked", clip(".mp4", camera=0, frames=100), username="viewer", password=PASSWORD)
    cameras = {name: {"url": server.url(f"/{name}"), "username": "viewer", "password": PASSWORD, **LIVE} for name in CAMERAS}
    cameras["locked"] = {**cameras["north"], "url": server.url("/locked"), "password": WRONG_PASSWORD}
    redis = new_redis()
    read = reader(redis)
    daemon = new_daemon(cameras, redis={"url": redis.url})

    def delivers(already):
        """Each good camera has two results of a session that is not in `already`."""
        return all(sum(count for session, count in read.sessions(name).items() if session not in already) >= 2 for name in CAMERAS)

    def sessions():
        return {session for name in CAMERAS for session in read.sessions(name)}

    # the first results
    daemon.wait(lambda: all(read.count(name) >= 4 for name in CAMERAS), "four results of each camera")
    daemon.wait(lambda: locked.refused >= 2, "the locked camera asked twice")
    seen.xread = redis.cli("XREAD", "COUNT", "2", "STREAMS", *(f"streamd:results:{name}" for name in CAMERAS), *("0",) * 4)
    seen.states = read.states()
    seen.locked = (locked.connections, time.time() - daemon.started_s)
    sent = {name: path.frames_sent for name, path in paths.items()}
    daemon.wait(lambda: all(read.last(name).sequence + SAMPLED >= sent[name] for name in CAMERAS), f"all that was sent is received: {sent}")

    # the server is killed and started again
    before = sessions()
    server.stop()
    daemon.wait(lambda: all(read.phases()[name] == "down" for name in CAMERAS), "all down")
    server.start()
    daemon.wait(lambda: delivers(before), "all back after the server's restart")
    seen.server_is_back = sessions()

    # the worker is killed
    (pid,) = daemon.workers()
    os.kill(pid, signal.SIGKILL)
    daemon.wait(lambda: delivers(seen.server_is_back), "all back after the worker's death")
    seen.workers = {pid, *daemon.workers()}

    # the end
    teardowns = {name: path.teardowns for name, path in paths.items()}
    seen.exit_code, seen.exit_took_s = daemon.terminate()
    wait_until(lambda: all(path.teardowns > teardowns[name] for name, path in paths.items()), what="a TEARDOWN from each camera")
    seen.last_states = read.states()
    seen.results = {name: read.results(name) for name in CAMERAS}
    seen.events = [entry.record for entry in read.events()]
    seen.everything = read.everything()
    seen.daemon = daemon
    return seen


def kinds(scenario, camera):
    return [event.kind for event in scenario.events if event.camera == camera]


def test_redis_cli_shows_the_results_of_every_camera(street):
    for name in CAMERAS:
        assert f"streamd:results:{name}" in street.xread
    results = [json.loads(line) for line in street.xread.splitlines() if line.startswith("{")]
    assert len(results) == 8
    assert {result["camera"] for result in results} == set(CAMERAS)
    assert all(result["labels"] and result["schema"] == 1 for result in results)


def test_ids_increase_and_begin_with_the_capture_time(street):
    for name in CAMERAS:
        ids = [tuple(map(int, entry.id.split("-"))) for entry in street.results[name]]
        assert all(before < after for before, after in pairwise(ids))
        assert all(0 <= at_ms - entry.record.captured_ms < 1000 for (at_ms, _), entry in zip(ids, street.results[name], strict=True))


def test_capture_times_lie_within_the_run_and_follow_the_sampling(street):
    daemon = street.daemon
    for name in CAMERAS:
        own = [entry.record for entry in street.results[name]]
        assert all(daemon.started_s * 1000 <= result.captured_ms <= time.time() * 1000 for result in own)
        for before, after in pairwise(own):
            if before.session == after.session:
                assert after.sequence - before.sequence in {SAMPLED - 1, SAMPLED}
                assert after.captured_ms >= before.captured_ms


def test_each_camera_is_announced_and_its_state_is_in_the_hash(street):
    for name in CAMERAS:
        assert kinds(street, name)[:2] == [EventKind.STARTED, EventKind.UP]
        state = street.states[name]
        assert (state.phase, state.codec, state.width, state.height, state.decoder) == (Phase.UP, "h264", 320, 240, "cpu")
        assert state.model == "imagenet"
        assert state.source.endswith(f"/{name}")


def test_a_camera_with_a_wrong_password_is_refused_and_asks_seldom(street):
    assert street.states["locked"].phase is Phase.REFUSED
    assert street.states["locked"].reason == "unauthorized"
    assert kinds(street, "locked")[:2] == [EventKind.STARTED, EventKind.REFUSED]
    connections, within_s = street.locked
    assert connections <= 1 + within_s / (2 * 0.8)


def test_a_camera_with_a_wrong_password_costs_the_others_no_frame(street):
    for name in CAMERAS:
        own = [entry.record for entry in street.results[name]]
        assert sum(result.dropped for result in own) == 0
        for session in dict.fromkeys(result.session for result in own):
            mine = [result.sequence for result in own if result.session == session]
            assert mine[0] == 0, "each session begins with its first frame"
            assert len(mine) == 1 + mine[-1] * 2 // 25, "two of 25, none left out"


def test_all_cameras_come_back_when_the_server_does(street):
    for name in CAMERAS:
        own = kinds(street, name)
        assert own[: own.index(EventKind.DOWN) + 1] == [EventKind.STARTED, EventKind.UP, EventKind.DOWN]
        assert EventKind.UP in own[own.index(EventKind.DOWN) :]
        assert len(dict.fromkeys(entry.record.session for entry in street.results[name])) == 3


def test_a_worker_that_is_killed_is_replaced_and_its_cameras_come_back(street):
    assert len(street.workers) == 2
    for name in CAMERAS:
        own = kinds(street, name)
        assert own.count(EventKind.WORKER_DIED) == 1
        assert EventKind.UP in own[own.index(EventKind.WORKER_DIED) :]
    (died,) = street.daemon.logged("worker died")
    assert "SIGKILL" in died["detail"]


def test_sigterm_ends_all_sessions_and_exits_with_0_in_time(street):
    """The scenario itself waits for a TEARDOWN from each camera."""
    assert street.exit_code == 0
    assert street.exit_took_s < 10
    assert {state.phase for state in street.last_states.values()} == {Phase.STOPPED}
    assert {kinds(street, name)[-1] for name in (*CAMERAS, "locked")} == {EventKind.STOPPED}


def test_no_password_is_shown_anywhere(street):
    shown = street.daemon.stderr + street.daemon.stdout + street.everything
    assert "locked" in shown
    for secret in (PASSWORD, WRONG_PASSWORD):
        for spelling in (secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1]):
            assert spelling not in shown


def test_nothing_goes_wrong_in_the_daemon_s_own_code(street):
    assert street.daemon.stdout == ""
    assert "Traceback" not in street.daemon.stderr
    assert {line["level"] for line in street.daemon.log} <= {"info", "warning", "error"}
    assert {line["event"] for line in street.daemon.log if line["level"] == "error"} == {"worker died"}


# --- files, while Redis comes late

FILES = {"mp4": (".mp4", {"frames": 24, "b_frames": 2}), "webm": (".webm", {"codec": "vp9", "frames": 11})}


@pytest.fixture(scope="module")
def files(new_daemon, new_redis, reader, clip):
    """Two files and a Redis that is not there when the daemon starts."""
    redis = new_redis()
    redis.kill()
    cameras = {name: {"url": str(clip(suffix, **options))} for name, (suffix, options) in FILES.items()}
    daemon = new_daemon(cameras, redis={"url": redis.url, "max_queue": 50})
    daemon.wait(lambda: [line for line in daemon.logged("redis_away") if line.get("worker")], "a worker misses Redis")
    redis.start()
    read = reader(redis)
    code = daemon.exit_code()
    results = {name: read.results(name) for name in FILES}
    return SimpleNamespace(
        exit_code=code, results=results, events=[entry.record for entry in read.events()], states=read.states(), daemon=daemon
    )


def test_when_all_files_have_ended_the_daemon_exits_with_0(files):
    assert files.exit_code == 0
    assert {state.phase for state in files.states.values()} == {Phase.ENDED}
    for name in FILES:
        assert kinds(files, name) == [EventKind.STARTED, EventKind.UP, EventKind.ENDED]


def test_each_frame_of_a_file_has_exactly_one_result_although_redis_came_late(files):
    for name, (_, options) in FILES.items():
        own = [entry.record for entry in files.results[name]]
        assert sorted(result.sequence for result in own) == list(range(options["frames"]))
        shown = [result.pts for result in own]
        assert shown == sorted(set(shown)), "in the order in which they are shown"
        assert {result.dropped for result in own} == {0}
        assert len({result.session for result in own}) == 1


def test_the_log_says_that_redis_was_away_and_came_back(files):
    for event in ("redis_away", "redis_back"):
        assert {line.get("worker") for line in files.daemon.logged(event)} == {None, "w0"}
    assert "Traceback" not in files.daemon.stderr


# --- JSON lines on standard output, without Redis


def test_without_redis_results_events_and_states_are_lines_on_standard_output(new_daemon, clip):
    cameras = {"cat": {"url": str(clip(".mp4", frames=9))}, "gone": {"url": "no-such-file.mp4"}}
    daemon = new_daemon(cameras, redis=None, jsonl={"path": "-"})
    assert daemon.exit_code() == os.EX_NOINPUT, "one file could not be used"
    lines = [json.loads(line) for line in daemon.stdout.splitlines()]
    results = [line for line in lines if "labels" in line]
    assert sorted(result["sequence"] for result in results) == list(range(9))
    assert all(set(Result.__struct_fields__) <= set(result) for result in results)
    assert [line["kind"] for line in lines if line.get("camera") == "cat" and "kind" in line] == ["started", "up", "ended"]
    assert [line["kind"] for line in lines if line.get("camera") == "gone" and "kind" in line] == ["started", "failed"]
    assert [line["phase"] for line in lines if line.get("camera") == "gone" and "phase" in line][-1] == "failed"
    assert "no-such-file.mp4 does not exist" in daemon.stderr


# --- another RTSP server


def test_cameras_of_another_make_are_read_and_come_back(new_daemon, own_redis, reader, gst_server):
    """GStreamer's server, behind digest authentication, killed and started again."""
    server = gst_server(None, None, None, None, username="viewer", password=PASSWORD)
    read = reader(own_redis)
    cameras = {name: {"url": server.url(number), "username": "viewer", "password": PASSWORD, **LIVE} for number, name in enumerate(CAMERAS)}
    cameras["locked"] = {**cameras["north"], "password": WRONG_PASSWORD}
    daemon = new_daemon(cameras, redis={"url": own_redis.url})
    daemon.wait(lambda: all(read.count(name) >= 3 for name in CAMERAS), "three results of each camera")
    daemon.wait(lambda: read.phases()["locked"] == "refused", "the wrong password is refused")
    server.kill()
    daemon.wait(lambda: all(read.phases()[name] == "down" for name in CAMERAS), "all down")
    server.start()
    daemon.wait(
        lambda: all(list(read.sessions(name).values())[1:] and list(read.sessions(name).values())[-1] >= 2 for name in CAMERAS), "all back"
    )
    code, took_s = daemon.terminate()
    assert code == 0
    assert took_s < 10
    for name in CAMERAS:
        assert sum(entry.record.dropped for entry in read.results(name)) <= 1  # the kill may cut a frame in two
    assert PASSWORD not in daemon.stderr + read.everything()
