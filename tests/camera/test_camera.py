"""A camera's life: when it tries again, what it says of itself, and how it stops. Each frame is accounted for (the rig checks that)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import pytest
from support.wait import wait_until_async

from streamd.decoders.cpu import CpuDecoder
from streamd.records import EventKind, Phase
from streamd.types import DropReason

SOON = {"reconnect": {"initial": 0.05, "max": 0.2, "refused": 0.3}}


@contextlib.asynccontextmanager
async def running(*cameras):
    """Their tasks; ended with the block, within 2 s each."""
    tasks = [asyncio.create_task(camera.run()) for camera in cameras]
    try:
        yield tasks
    finally:
        for camera in cameras:
            camera.stop()
        await asyncio.wait_for(asyncio.gather(*tasks), 10)


async def stopped_within_s(camera, task):
    begin = time.monotonic()
    camera.stop()
    await asyncio.wait_for(task, 10)
    return time.monotonic() - begin


async def until_phase(rig, phase, *, times=1, name="door"):
    await wait_until_async(lambda: rig.phases(name).count(phase) >= times, what=f"{name} is {phase}: {rig.phases(name)}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- when it tries again


async def test_waits_between_failures_double_up_to_the_limit(rig):
    async with running(rig.camera(f"rtsp://127.0.0.1:{free_port()}/door", **SOON)):
        await until_phase(rig, "down", times=5)
    waits = [state.retry_in_s for state in rig.states if state.phase is Phase.DOWN][:5]
    for wait_s, nominal_s in zip(waits, [0.05, 0.1, 0.2, 0.2, 0.2], strict=True):
        assert 0.8 * nominal_s - 0.01 <= wait_s <= 1.2 * nominal_s + 0.01
    assert {state.reason for state in rig.states if state.phase is Phase.DOWN} == {"unreachable"}


@pytest.mark.parametrize("healthy_after_s", [0.01, 60])
async def test_a_healthy_connection_starts_again_with_the_first_wait(rig, rtsp_server, clip, healthy_after_s):
    # FFmpeg looks at the first dozen frames before it calls the stream open; the others are how long the connection lasts
    rtsp_server.add("/door", clip(".mp4"), drop_after=40, speed=4)
    reconnect = {"initial": 0.05, "max": 5, "healthy_after": healthy_after_s}
    async with running(rig.camera(rtsp_server.url("/door"), reconnect=reconnect)):
        await until_phase(rig, "down", times=3)
    third_s = [state.retry_in_s for state in rig.states if state.phase is Phase.DOWN][2]
    nominal_s = 0.05 if healthy_after_s < 60 else 0.2
    assert 0.8 * nominal_s - 0.01 <= third_s <= 1.2 * nominal_s + 0.01


async def test_a_camera_comes_back_when_its_server_does(rig, rtsp_server, clip):
    rtsp_server.add("/door", clip(".mp4", frames=100), speed=4)
    async with running(rig.camera(rtsp_server.url("/door"), **SOON)):
        await wait_until_async(lambda: len(rig.seen) >= 5, what="frames")
        rtsp_server.stop()
        await until_phase(rig, "down", times=2)
        seen = len(rig.seen)
        rtsp_server.start()
        await until_phase(rig, "up", times=2)
        await wait_until_async(lambda: len(rig.seen) >= seen + 5, what="frames of the new session")
    sessions = list(dict.fromkeys(seen.session for seen in rig.seen))
    assert len(sessions) == 2
    for session in sessions:
        own = [seen for seen in rig.seen if seen.session == session]
        assert [seen.sequence for seen in own] == [seen.marker_frame for seen in own] == list(range(len(own)))
    assert [str(event.kind) for event in rig.events][:2] == ["up", "down"]
    assert [str(event.kind) for event in rig.events][-2:] == ["up", "stopped"]


async def test_a_camera_that_falls_silent_is_connected_again(rig, rtsp_server, clip):
    door = rtsp_server.add("/door", clip(".mp4"), stall_after=5, speed=4)
    async with running(rig.camera(rtsp_server.url("/door"), silence_timeout=0.3, connect_timeout=0.3, **SOON)):
        await until_phase(rig, "down")
        rtsp_server.change("/door", stall_after=None)
        await until_phase(rig, "up", times=2)
    assert rig.state("down").reason == "timeout"
    assert door.plays >= 2


async def test_refused_credentials_are_tried_again_slowly(rig, rtsp_server, clip):
    door = rtsp_server.add("/door", clip(".mp4"), username="viewer", password="right")
    reconnect = {"initial": 0.01, "max": 0.01, "refused": 0.3}
    camera = rig.camera(rtsp_server.url("/door"), username="viewer", password="wrong-canary", reconnect=reconnect)
    begin = time.monotonic()
    async with running(camera):
        await until_phase(rig, "refused", times=3)
        elapsed_s = time.monotonic() - begin
    assert elapsed_s > 2 * 0.8 * 0.3
    assert 0.24 <= rig.state("refused").retry_in_s <= 0.36
    assert rig.state("refused").reason == "unauthorized"
    assert door.refused == door.connections == 3
    assert {event.kind for event in rig.events} == {EventKind.REFUSED, EventKind.STOPPED}
    assert "wrong-canary" not in repr(rig.states) + repr(rig.events)


async def test_credentials_that_are_right_again_end_the_refusal(rig, rtsp_server, clip):
    rtsp_server.add("/door", clip(".mp4"), username="viewer", password="p@ss:w/rd%", unauthorized=True, speed=4)
    async with running(rig.camera(rtsp_server.url("/door"), username="viewer", password="p@ss:w/rd%", **SOON)):
        await until_phase(rig, "refused")
        rtsp_server.change("/door", unauthorized=False)
        await until_phase(rig, "up")


async def test_a_decoder_that_crashes_costs_one_session(rig, rtsp_server, clip, monkeypatch):
    decode, calls = CpuDecoder.decode, []

    def crash_once(self, packet):
        calls.append(packet)
        if len(calls) == 8:
            raise RuntimeError("a bug in the decoder")
        return decode(self, packet)

    monkeypatch.setattr(CpuDecoder, "decode", crash_once)
    rtsp_server.add("/door", clip(".mp4"), speed=4)
    async with running(rig.camera(rtsp_server.url("/door"), **SOON)):
        await until_phase(rig, "up", times=2)
        await wait_until_async(lambda: len(rig.seen) >= 12, what="frames of the second session")
    down = rig.state("down")
    assert (down.reason, down.detail) == ("decoder", "decoding failed: RuntimeError")
    assert rig.frames()[:12] == [*range(7), *range(5)]
    assert rig.counts().dropped[DropReason.SHUTDOWN] >= 1


# --- files


async def test_a_file_has_ended_when_its_results_are_through(rig, clip):
    rig.model.open.clear()
    camera = rig.camera(clip(".mp4", b_frames=2))
    task = asyncio.create_task(camera.run())
    await wait_until_async(lambda: camera.ledger.snapshot().received == 50, what="all read")
    await asyncio.wait({task}, timeout=0.2)
    assert "ended" not in rig.phases()
    rig.model.open.set()
    await asyncio.wait_for(task, 10)
    assert rig.phases() == ["connecting", "up", "ended"]
    assert [str(event.kind) for event in rig.events] == ["up", "ended"]
    assert rig.frames() == list(range(50))


async def test_a_file_that_cannot_be_used_has_failed_for_good(rig, tmp_path):
    (tmp_path / "letter.mp4").write_text("Dear camera")
    await asyncio.wait_for(rig.camera(tmp_path / "letter.mp4", **SOON).run(), 10)
    assert rig.phases() == ["connecting", "failed"]
    assert rig.state("failed").reason == "not_video"
    assert rig.events[-1].kind is EventKind.FAILED


# --- who is who


async def test_no_frame_is_lost_or_taken_for_another_cameras(new_rig, rtsp_server, clip):
    """Four cameras and two files at once, in batches together; two cameras are broken off in between."""
    rig = new_rig(slots=256)
    served = {}
    for number in range(4):
        path = clip(".mp4", camera=number, frames=30, b_frames=0 if number % 2 else 2)
        served[number] = rtsp_server.add(f"/{number}", path, drop_after=20 if number < 2 else None)
    # a patient max_age: the machine may be busy, and this is not about overload
    cameras = [rig.camera(rtsp_server.url(f"/{number}"), name=f"cam{number}", max_age=60, **SOON) for number in range(4)]
    files = [rig.camera(clip(".mp4", camera=number, frames=60, b_frames=1), name=f"cam{number}") for number in (4, 5)]
    async with running(*cameras, *files):
        await wait_until_async(
            lambda: all(len(rig.frames(f"cam{number}")) >= 60 for number in range(6)), timeout_s=30, what="60 frames each"
        )
    for number in range(6):
        own = [seen for seen in rig.seen if seen.camera == f"cam{number}"]
        assert {seen.marker_camera for seen in own} == {number}
        assert rig.counts(f"cam{number}").dropped == {}
        for session in dict.fromkeys(seen.session for seen in own):
            mine = [seen for seen in own if seen.session == session]
            assert sorted(seen.sequence for seen in mine) == list(range(len(mine)))
            # the last one may be a reference frame, whose B-frames had not come when the session ended
            period = 60 if number >= 4 else 30
            assert [seen.marker_frame for seen in mine][:-1] == [place % period for place in range(len(mine) - 1)]
    assert served[0].plays >= 3
    assert served[2].plays == 1


async def test_what_a_camera_says_of_itself(rig, rtsp_server, clip):
    url = rtsp_server.url("/door")
    rtsp_server.add("/door", clip(".mp4", codec="hevc"), username="viewer", password="right", speed=4)
    async with running(rig.camera(url, username="viewer", password="right")):
        await until_phase(rig, "up")
    up = rig.state("up")
    assert (up.camera, up.source, up.codec, up.width, up.height, up.decoder, up.model) == ("door", url, "hevc", 320, 240, "cpu", "markers")
    assert abs(up.since_ms - time.time() * 1000) < 60_000
    assert up.session == rig.states[0].session
    assert rig.phases() == ["connecting", "up", "stopped"]
    assert rig.state("stopped").session is None


# --- stop


async def test_stop_before_the_first_connection(rig):
    camera = rig.camera("rtsp://door.example/1")
    task = asyncio.create_task(camera.run(start_after_s=60))
    await asyncio.sleep(0)
    assert await stopped_within_s(camera, task) < 2
    assert rig.phases() == ["stopped"]


async def test_stop_while_a_silent_server_does_not_answer(rig, rtsp_server, clip):
    door = rtsp_server.add("/door", clip(".mp4"), silent=True)
    camera = rig.camera(rtsp_server.url("/door"), connect_timeout=3, first_packet_timeout=3, silence_timeout=3)
    task = asyncio.create_task(camera.run())
    await wait_until_async(lambda: door.connections == 1, what="a connection")
    assert await stopped_within_s(camera, task) < 2
    assert rig.phases() == ["connecting", "stopped"]


@pytest.mark.parametrize("phase", ["down", "refused"])
async def test_stop_while_it_waits_for_the_next_attempt(rig, rtsp_server, clip, phase):
    rtsp_server.add("/door", clip(".mp4"), unauthorized=phase == "refused", not_found=phase == "down")
    camera = rig.camera(rtsp_server.url("/door"), username="viewer", password="wrong", reconnect={"initial": 60, "refused": 60})
    task = asyncio.create_task(camera.run())
    await until_phase(rig, phase)
    assert await stopped_within_s(camera, task) < 2
    assert rig.phases() == ["connecting", phase, "stopped"]


async def test_stop_while_frames_come(rig, rtsp_server, clip):
    door = rtsp_server.add("/door", clip(".mp4"), speed=4)
    camera = rig.camera(rtsp_server.url("/door"))
    task = asyncio.create_task(camera.run())
    await wait_until_async(lambda: len(rig.seen) >= 3, what="frames")
    assert await stopped_within_s(camera, task) < 2
    assert rig.phases() == ["connecting", "up", "stopped"]
    await wait_until_async(lambda: door.teardowns == 1 and door.sessions == 0, what="TEARDOWN")


@pytest.mark.parametrize("options", [{"realtime": True, "loop": True}, {"loop": True}], ids=["paced", "unpaced"])
async def test_stop_of_a_file_that_has_no_end(rig, clip, options):
    camera = rig.camera(clip(".mp4"), **options)
    task = asyncio.create_task(camera.run())
    await wait_until_async(lambda: len(rig.seen) >= 3, what="frames")
    await stopped_within_s(camera, task)
    assert rig.phases() == ["connecting", "up", "stopped"]


async def test_stop_of_a_file_that_waits_for_a_full_engine(new_rig, clip):
    rig = new_rig(slots=8, max_batch=4)
    rig.model.open.clear()
    camera = rig.camera(clip(".mp4", frames=200))
    task = asyncio.create_task(camera.run())
    await wait_until_async(lambda: camera.ledger.snapshot().received >= 129, what="the reader waits")
    asyncio.get_running_loop().call_later(0.1, rig.model.open.set)
    await stopped_within_s(camera, task)
    assert rig.phases()[-1] == "stopped"
    assert rig.frames() == list(range(len(rig.frames())))


async def test_a_camera_whose_stop_is_cut_short_lets_go_at_once(new_rig, clip):
    """As a worker does whose time to stop is over."""
    rig = new_rig(slots=8, max_batch=4)
    rig.model.open.clear()
    camera = rig.camera(clip(".mp4", frames=200))
    task = asyncio.create_task(camera.run())
    await wait_until_async(lambda: camera.ledger.snapshot().received >= 129, what="the reader waits")
    camera.stop()
    task.cancel()
    begin = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begin < 2
    rig.model.open.set()
    await rig.settled()
