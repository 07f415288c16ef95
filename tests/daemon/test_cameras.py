"""Camera states: held, written, logged without repetition."""

import pytest
from structlog.testing import capture_logs

from streamd.config import Config
from streamd.daemon.cameras import Cameras
from streamd.records import CameraState, Event, EventKind, Phase


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def written():
    return []


@pytest.fixture
def cameras(clock, written):
    addresses = {"door": "rtsp://door.example/1?token=abcdef", "gate": "rtsp://gate.example/1"}
    config = Config.model_validate(
        {"models": {"m": {"torchvision": "resnet50"}}, "cameras": {name: {"url": url} for name, url in addresses.items()}}
    )
    return Cameras(config, put=written.append, clock_s=clock)


def state(phase, camera="door", **fields):
    return CameraState(camera=camera, phase=phase, since_ms=1, **fields)


def logged(cameras, *states):
    """Event and level of what was logged about these states."""
    with capture_logs() as lines:
        for each in states:
            cameras.changed(each, None)
    return [(line["camera"], line["event"], line["log_level"]) for line in lines if line["log_level"] != "debug"]


def test_an_address_is_written_without_its_token(cameras):
    assert cameras.states["door"].source == "rtsp://door.example/1?token=***"


def test_a_change_is_held_and_written_event_first(cameras, written):
    event = Event(kind=EventKind.UP, camera="door", at_ms=1)
    cameras.changed(state(Phase.UP), event)
    assert written == [event, state(Phase.UP)]
    assert cameras.states["door"] == state(Phase.UP)
    assert cameras.count(Phase.UP) == 1


def test_each_change_is_a_line(cameras):
    assert logged(cameras, state(Phase.UP), state(Phase.DOWN, reason="timeout"), state(Phase.UP), state(Phase.ENDED)) == [
        ("door", "camera up", "info"),
        ("door", "camera down", "warning"),
        ("door", "camera up", "info"),
        ("door", "camera ended", "info"),
    ]


def test_the_same_failure_is_a_line_once_a_minute(cameras, clock):
    failing = [state(Phase.CONNECTING), state(Phase.DOWN, reason="timeout")]
    assert len(logged(cameras, *failing * 5)) == 1
    clock.now_s += 59.9
    assert logged(cameras, *failing) == []
    clock.now_s += 0.1
    with capture_logs() as lines:
        cameras.changed(failing[1], None)
    assert lines[0]["repeated"] == 5
    assert logged(cameras, *failing) == []


def test_another_failure_or_another_camera_is_a_line_of_its_own(cameras):
    down = [state(Phase.DOWN, reason="timeout"), state(Phase.DOWN, reason="unreachable"), state(Phase.DOWN, "gate", reason="timeout")]
    assert len(logged(cameras, *down * 3)) == 3


def test_a_camera_that_flaps_is_not_up_twice_without_a_line_between(cameras):
    flapping = [state(Phase.UP, codec="h264"), state(Phase.DOWN, reason="timeout")]
    assert [event for _, event, _ in logged(cameras, *flapping * 4)] == ["camera up", "camera down", "camera up"]


def test_another_size_is_a_line(cameras):
    assert len(logged(cameras, state(Phase.UP, width=640), state(Phase.UP, width=640), state(Phase.UP, width=1280))) == 2


def test_a_file_that_cannot_be_used_is_an_error(cameras):
    assert logged(cameras, state(Phase.FAILED, reason="not_video")) == [("door", "camera failed", "error")]


def test_cameras_that_are_done_are_neither_down_nor_stopped_afterwards(cameras, written):
    cameras.changed(state(Phase.ENDED), None)
    assert cameras.unfinished(["door", "gate"]) == ["gate"]
    cameras.stopped()
    assert [record.camera for record in written[1:]] == ["gate", "gate"]


def test_a_camera_that_its_worker_stopped_is_not_stopped_again(cameras, written):
    cameras.changed(state(Phase.STOPPED), Event(kind=EventKind.STOPPED, camera="door", at_ms=1))
    cameras.stopped()
    assert [record.kind for record in written if isinstance(record, Event) and record.camera == "door"] == [EventKind.STOPPED]


def test_what_was_known_of_a_stream_stays_known_while_its_worker_is_away(cameras):
    cameras.changed(state(Phase.UP, session="s1", codec="h264", width=640), None)
    cameras.worker_died(["door"], detail="killed by SIGSEGV", retry_in_s=0.5)
    now = cameras.states["door"]
    assert (now.phase, now.reason, now.session, now.retry_in_s, now.codec) == (Phase.DOWN, "worker_died", None, 0.5, "h264")


def test_all_states_can_be_written_again_without_an_event(cameras, written):
    cameras.repeat()
    assert written == list(cameras.states.values())
