"""One connection, from open to end: its deadlines, its last frames, and that each frame is accounted for (the rig checks that)."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from support.wait import wait_until_async

from streamd.errors import Disconnected, NoFrames, NotFound, SourceTimeout, StreamdError, Unauthorized
from streamd.sources.file import FileSource
from streamd.types import DropReason

SHORT = {"connect_timeout": 0.4, "first_packet_timeout": 0.4, "silence_timeout": 0.4}


@contextlib.asynccontextmanager
async def running(session):
    """The session's task and its stop event; ended with the block."""
    stop = asyncio.Event()
    task = asyncio.create_task(session.run(stop))
    try:
        yield task, stop
    finally:
        stop.set()
        with contextlib.suppress(StreamdError):
            await asyncio.wait_for(task, 10)


async def run(session):
    """To the end, 20 s at most."""
    await asyncio.wait_for(session.run(asyncio.Event()), 20)


async def took_s(awaitable):
    begin = time.monotonic()
    await awaitable
    return time.monotonic() - begin


class NoFrameDecoder:
    """Takes all, gives nothing: as NVDEC does with damage."""

    name = "cpu"

    def decode(self, packet):
        return []

    def drain(self):
        return []

    def close(self):
        pass


# --- deadlines


@pytest.mark.parametrize(
    ("behaviour", "limit_s"),
    [({"silent": True}, 0.8), ({"no_rtp": True}, 0.8), ({"stall_after": 12, "speed": 4}, 0.4)],
    ids=["silent server", "no RTP", "stall"],
)
async def test_a_camera_that_falls_silent_is_given_up_at_its_deadline(rig, rtsp_server, clip, behaviour, limit_s):
    rtsp_server.add("/door", clip(".mp4"), **behaviour)
    session = rig.session(rtsp_server.url("/door"), **SHORT)
    with pytest.raises(SourceTimeout) as caught:
        await run(session)
    last_ns = session._reader.last_packet_ns
    assert time.monotonic() - (session._started_s if last_ns is None else last_ns / 1e9) < limit_s + 1
    assert rtsp_server.url("/door") in str(caught.value)


async def test_an_open_that_does_not_return_is_given_up_at_its_deadline(rig, stuck_source):
    stuck_source()
    with pytest.raises(SourceTimeout, match=r"could not be opened within 0\.8 s"):
        await run(session := rig.session("rtsp://door.example/1", **SHORT))
    assert 0.8 <= time.monotonic() - session._started_s < 0.8 + 1


async def test_a_first_packet_that_does_not_come_is_given_up_at_its_deadline(rig, stuck_source, clip):
    stuck_source(FileSource(clip(".ts"), loop=False), packets=0)
    with pytest.raises(SourceTimeout, match=r"sent no packet within 0\.4 s"):
        await run(session := rig.session("rtsp://door.example/1", **SHORT))
    assert 0.4 <= time.monotonic() - session._opened_s < 0.4 + 1


async def test_a_read_that_does_not_return_is_given_up_at_its_deadline(rig, stuck_source, clip):
    stuck = stuck_source(FileSource(clip(".ts"), loop=False), packets=7)
    with pytest.raises(SourceTimeout, match=r"sent nothing for 0\.4 s"):
        await run(session := rig.session("rtsp://door.example/1", **SHORT))
    assert time.monotonic() - session._reader.last_packet_ns / 1e9 < 0.4 + 1
    assert rig.counts().received == 7
    stuck.release.set()
    await wait_until_async(lambda: not stuck.thread.is_alive(), what="the reader ends")
    assert rig.counts().received == 7, "what an abandoned reader still reads is nobody's"


async def test_a_camera_whose_packets_give_no_frame_is_given_up_at_its_deadline(rig, rtsp_server, clip, monkeypatch):
    monkeypatch.setattr("streamd.camera.session._NO_FRAME_TIMEOUT_S", 0.3)
    monkeypatch.setattr("streamd.decoders.create", lambda *_args, **_options: NoFrameDecoder())
    rtsp_server.add("/door", clip(".mp4"), speed=4)
    with pytest.raises(NoFrames, match=r"sent packets for 0\.3 s, but no frame could be decoded"):
        await run(rig.session(rtsp_server.url("/door")))


async def test_a_camera_that_others_leave_no_decoder_to_is_not_called_broken(rig, rtsp_server, clip, monkeypatch):
    monkeypatch.setattr("streamd.camera.session._NO_FRAME_TIMEOUT_S", 0.1)
    monkeypatch.setattr("streamd.camera.inbox.Inbox.is_starved", True)
    monkeypatch.setattr("streamd.decoders.create", lambda *_args, **_options: NoFrameDecoder())
    rtsp_server.add("/door", clip(".mp4"))
    async with running(rig.session(rtsp_server.url("/door"))) as (task, _):
        await wait_until_async(lambda: rig.counts().received >= 20, what="packets for much longer than the deadline")
        assert not task.done()


async def test_a_file_may_take_its_time(rig, clip):
    """Its reader waits while the engine is full: no deadline of a live camera applies."""
    rig.model.open.clear()
    async with running(rig.session(clip(".mp4"), **SHORT)) as (task, _):
        await asyncio.wait({task}, timeout=1.2)
        assert not task.done()
        rig.model.open.set()
        await asyncio.wait_for(task, 10)
    await rig.settled()
    assert rig.frames() == list(range(50))


# --- ends


async def test_a_session_does_not_try_again(rig, rtsp_server, clip):
    door = rtsp_server.add("/door", clip(".mp4"), drop_after=5)
    with pytest.raises(Disconnected):
        await run(rig.session(rtsp_server.url("/door")))
    assert door.plays == 1
    assert rtsp_server.connects == 1


async def test_frames_before_the_connection_broke_off_are_still_classified(rig, rtsp_server, clip):
    rtsp_server.add("/door", clip(".mp4"), drop_after=30, speed=4)
    with pytest.raises(Disconnected):
        await run(rig.session(rtsp_server.url("/door")))
    await rig.settled()
    assert rig.frames() == list(range(30))


async def test_wrong_credentials_are_told_from_other_faults(rig, rtsp_server, clip):
    rtsp_server.add("/door", clip(".mp4"), username="viewer", password="right")
    with pytest.raises(Unauthorized):
        await run(rig.session(rtsp_server.url("/door"), username="viewer", password="wrong"))


@pytest.mark.parametrize(("suffix", "options"), [(".mp4", {"b_frames": 3}), (".mkv", {"codec": "hevc", "b_frames": 2}), (".ts", {})])
async def test_the_end_of_a_file_drains_everything(rig, clip, suffix, options):
    await run(rig.session(clip(suffix, frames=40, camera=5, **options)))
    await rig.settled()
    counts = rig.counts()
    assert (counts.received, counts.decoded, counts.published, counts.dropped) == (40, 40, 40, {})
    assert rig.frames() == list(range(40))
    assert {seen.marker_camera for seen in rig.seen} == {5}
    assert sorted(seen.sequence for seen in rig.seen) == list(range(40))
    shown = [seen.pts for seen in rig.seen]
    assert shown == sorted(set(shown))


async def test_a_file_that_is_not_there_is_an_error(rig, tmp_path):
    with pytest.raises(NotFound):
        await run(rig.session(tmp_path / "no.mp4"))


async def test_a_file_without_one_decodable_frame_is_an_error(rig, clip, monkeypatch):
    monkeypatch.setattr("streamd.decoders.create", lambda *_args, **_options: NoFrameDecoder())
    with pytest.raises(NoFrames, match="ended without one frame that could be decoded"):
        await run(rig.session(clip(".mp4")))
    assert rig.counts().dropped == {DropReason.UNDECODED: 50}


async def test_a_decoder_that_this_machine_lacks_is_an_error(rig, clip):
    with pytest.raises(StreamdError, match="nvdec needs a GPU"):
        await run(rig.session(clip(".mp4"), decoder="nvdec"))


async def test_a_decoder_that_crashes_ends_the_session(rig, clip, monkeypatch):
    def crash(*_args):
        raise RuntimeError("a bug in the decoder")

    monkeypatch.setattr("streamd.decoders.cpu.CpuDecoder.decode", crash)
    with pytest.raises(StreamdError, match="decoding failed: RuntimeError"):
        await run(rig.session(clip(".mp4")))
    counts = rig.counts()
    assert counts.dropped == {DropReason.SHUTDOWN: counts.received}


# --- what the configuration asks for


async def test_up_tells_of_the_first_frame(rig, clip):
    ups = []
    await run(rig.session(clip(".mkv", codec="vp9", frames=5), on_up=ups.append))
    (up,) = ups
    assert (up.info.codec, up.width, up.height, up.decoder, up.decoder_reason) == ("vp9", 320, 240, "cpu", None)


async def test_realtime_paces_a_file_by_its_time_stamps(rig, clip):
    path = clip(".mp4", frames=25, b_frames=2)
    elapsed_s = await took_s(run(rig.session(path, realtime=True)))
    assert 0.9 < elapsed_s < 2.5
    await rig.settled()
    assert rig.frames() == list(range(25))


async def test_loop_goes_on_with_rising_numbers_and_times(rig, clip):
    async with running(rig.session(clip(".mp4", frames=10, b_frames=2), loop=True)):
        await wait_until_async(lambda: len(rig.seen) >= 35, what="the fourth round")
    await rig.settled()
    frames = rig.frames()
    # the last one may be a reference frame, whose B-frames had not come when the session was stopped
    assert frames[:-1] == [number % 10 for number in range(len(frames) - 1)]
    stamps = [seen.pts for seen in rig.seen]
    assert stamps == sorted(set(stamps))
    assert sorted(seen.sequence for seen in rig.seen) == list(range(len(frames)))


@pytest.mark.parametrize("b_frames", [0, 2])
async def test_keyframes_takes_key_frames_only(rig, clip, b_frames):
    await run(rig.session(clip(".mp4", frames=50, gop=10, b_frames=b_frames), decode="keyframes"))
    await rig.settled()
    assert rig.frames() == [0, 10, 20, 30, 40]
    assert rig.counts().dropped == {DropReason.SAMPLED_OUT: 45}
    assert rig.counts().decoded == 5


async def test_keyframes_of_a_loop_counts_what_is_left_out(rig, clip):
    async with running(rig.session(clip(".mp4", frames=20, gop=10), loop=True, decode="keyframes")):
        await wait_until_async(lambda: len(rig.seen) >= 9, what="the fifth round")
    await rig.settled()
    counts = rig.counts()
    assert rig.frames() == [number % 2 * 10 for number in range(len(rig.seen))]
    assert [seen.sequence for seen in rig.seen] == [10 * number for number in range(len(rig.seen))]
    keys = counts.received - counts.dropped[DropReason.SAMPLED_OUT]
    assert counts.decoded <= keys
    assert 10 * (keys - 1) < counts.received <= 10 * keys


async def test_a_key_frame_is_not_held_back_until_the_next_one(rig, clip):
    await run(rig.session(clip(".mp4", frames=21, gop=10, b_frames=2), decode="keyframes", realtime=True))
    await rig.settled()
    assert rig.frames() == [0, 10, 20]
    assert all(seen.age_s < 0.35 for seen in rig.seen), [seen.age_s for seen in rig.seen]


async def test_fps_samples_by_media_time(rig, clip):
    await run(rig.session(clip(".mp4", frames=50), fps=5))
    await rig.settled()
    assert rig.frames() == list(range(0, 50, 5))
    assert rig.counts().dropped == {DropReason.SAMPLED_OUT: 40}


async def test_rotate_turns_the_picture_clockwise(rig, clip):
    path = clip(".mp4", size=(240, 240), frames=3)
    await run(rig.session(path, name="upright"))
    await rig.settled("upright")
    await run(rig.session(path, name="turned", rotate=90))
    await rig.settled("turned")
    upright, turned = rig.model.pictures[:3], rig.model.pictures[3:]
    for before, after in zip(upright, turned, strict=True):
        assert (before.rot90(-1, (1, 2)) - after).abs().mean() < 0.05
        assert (before - after).abs().mean() > 0.3


# --- stop


async def test_stop_lets_what_was_received_go_through(rig, rtsp_server, clip):
    door = rtsp_server.add("/door", clip(".mp4", frames=100), speed=4)
    async with running(rig.session(rtsp_server.url("/door"))) as (task, stop):
        await wait_until_async(lambda: len(rig.seen) >= 10, what="ten frames")
        stop.set()
        assert await took_s(task) < 2
    await rig.settled()
    assert rig.counts().dropped == {}
    assert rig.frames() == list(range(rig.counts().received))
    await wait_until_async(lambda: door.teardowns == 1, what="TEARDOWN")


async def test_stop_does_not_wait_for_a_native_call(rig, stuck_source, clip):
    stuck = stuck_source(FileSource(clip(".ts"), loop=False), packets=3)
    async with running(rig.session("rtsp://door.example/1")) as (task, stop):
        await wait_until_async(lambda: len(rig.seen) == 3, what="three frames")
        stop.set()
        assert await took_s(task) < 2
    assert not stuck.release.is_set()


async def test_stop_of_a_file_that_waits_for_the_engine_needs_the_engine_only(new_rig, clip):
    rig = new_rig(slots=8, max_batch=4)
    rig.model.open.clear()
    async with running(rig.session(clip(".mp4", frames=200))) as (task, stop):
        # one in the reader's hands and 128 in the inbox; what the decoder and the slots hold comes on top
        await wait_until_async(lambda: rig.counts().received >= 129, what="the reader waits")
        stop.set()
        await asyncio.wait({task}, timeout=0.1)
        assert not task.done()
        rig.model.open.set()
        await asyncio.wait_for(task, 10)
    await rig.settled()
    assert rig.counts().received < 200
    assert rig.frames() == list(range(rig.counts().published))
    assert sum(rig.counts().dropped.values()) <= 1, "the packet in the reader's hands"


async def test_a_cancelled_session_gives_up_what_waits(new_rig, clip):
    rig = new_rig(slots=8, max_batch=4)
    rig.model.open.clear()
    task = asyncio.create_task(rig.session(clip(".mp4", frames=200)).run(asyncio.Event()))
    await wait_until_async(lambda: rig.counts().received >= 129, what="the reader waits")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 2)
    rig.model.open.set()
    await wait_until_async(lambda: rig.counts().in_flight == 0, what="all accounted for")
    assert rig.counts().dropped[DropReason.SHUTDOWN] >= 100
