"""Files through DALI, or what stands in for it: every frame once, in order, as by the other decoders, and each accounted for."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
import torch
from support.runs import FakeReader
from support.wait import wait_until_async

from streamd.camera.backlog import recipe
from streamd.decoders import dali
from streamd.errors import DecodeError, DecoderUnavailable, NotFound, StreamdError
from streamd.preprocess.spec import InputSpec
from streamd.sources.file import FileSource
from streamd.types import DropReason

VP9 = {"codec": "vp9", "frames": 45, "gop": 20, "camera": 3}
"""What DALI decodes on a CPU too."""
SMALL = InputSpec(resize=100, crop=(90, 90), interpolation="bilinear", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@pytest.fixture
def readers(monkeypatch):
    """`readers(before=...)`: cameras with `decoder: dali` get fake readers from now on. They must all be closed at the end."""
    made = []

    def use(**options):
        def new(*arguments, **more):
            made.append(FakeReader(*arguments, **more, **options))
            return made[-1]

        monkeypatch.setattr(dali, "refusal", lambda info, device: None)
        monkeypatch.setattr(dali, "DaliReader", new)
        return made

    yield use
    assert all(reader.is_closed.wait(5) for reader in made)


@pytest.fixture(params=["stand-in", pytest.param("DALI", marks=pytest.mark.comparison)])
def library(request, readers, monkeypatch):
    """On the CPU, where DALI's own reader takes VP8, VP9 and Motion JPEG."""
    if request.param == "stand-in":
        readers()
    else:
        pytest.importorskip("nvidia.dali")
        monkeypatch.setattr(dali, "refusal", lambda info, device: None)
    return request.param


async def run(session):
    """To the end, 20 s at most."""
    await asyncio.wait_for(session.run(asyncio.Event()), 20)


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


# --- the whole file


async def test_every_frame_of_a_file_is_classified_once_in_order_with_the_time_of_the_other_decoders(library, rig, clip):
    path = clip(".mkv", **VP9)
    await run(rig.session(path, decoder="dali"))
    await run(rig.session(path, decoder="cpu", name="plain"))
    await rig.settled()
    await rig.settled("plain")
    counts = rig.counts()
    assert (counts.received, counts.decoded, counts.published, counts.dropped) == (45, 45, 45, {})
    ours = [seen for seen in rig.seen if seen.camera == "door"]
    assert [seen.sequence for seen in ours] == list(range(45))
    assert {seen.marker_camera for seen in ours} == {3}
    plain = [(seen.pts, seen.marker_frame) for seen in rig.seen if seen.camera == "plain"]
    assert [(seen.pts, seen.marker_frame) for seen in ours] == plain == sorted(plain)


async def test_its_samples_are_those_of_our_own_preprocessing(library, rig, clip):
    path = clip(".mkv", **VP9)
    await run(rig.session(path, decoder="dali"))
    await rig.settled()
    await run(rig.session(path, decoder="cpu", name="plain"))
    await rig.settled("plain")
    ours, plain = torch.stack(rig.model.pictures[:45]), torch.stack(rig.model.pictures[45:])
    levels = (ours - plain).abs() * 255 * 0.225
    assert levels.mean() < 0.5
    assert levels.amax(dim=(1, 2, 3)).max() < 40, "at the edges of the marker, whose colours do not exist in R'G'B'"


async def test_up_names_dali(library, rig, clip):
    ups = []
    await run(rig.session(clip(".mkv", **VP9), decoder="dali", on_up=ups.append))
    await rig.settled()
    (up,) = ups
    assert (up.info.codec, up.width, up.height, up.decoder, up.decoder_reason) == ("vp9", 320, 240, "dali", None)


async def test_frames_are_chosen_by_time_as_with_the_other_decoders(library, rig, clip):
    path = clip(".mkv", **VP9)
    await run(rig.session(path, decoder="dali", fps=7))
    await run(rig.session(path, decoder="cpu", fps=7, name="plain"))
    await rig.settled()
    await rig.settled("plain")
    assert rig.frames() == rig.frames("plain")
    assert len(rig.frames()) < 20
    assert rig.counts().dropped == {DropReason.SAMPLED_OUT: 45 - len(rig.frames())}


@pytest.mark.parametrize("frames", [1, 7, 8, 16, 17])
async def test_a_last_run_that_is_not_full_ends_with_the_last_frame(library, rig, clip, frames):
    await run(rig.session(clip(".mkv", **VP9 | {"frames": frames}), decoder="dali"))
    await rig.settled()
    assert rig.frames() == list(range(frames))


async def test_a_file_that_does_not_begin_at_zero_keeps_its_own_times(readers, rig, clip):
    readers()
    path = clip(".ts", frames=20, b_frames=2)
    await run(rig.session(path, decoder="dali"))
    await run(rig.session(path, decoder="cpu", name="plain"))
    await rig.settled()
    await rig.settled("plain")
    stamps = {name: [seen.pts for seen in rig.seen if seen.camera == name] for name in ("door", "plain")}
    assert stamps["door"] == stamps["plain"]
    assert stamps["door"][0] > 0


# --- room


async def test_a_file_waits_for_room_and_loses_nothing(library, new_rig, clip):
    rig = new_rig(slots=8, max_batch=4)
    rig.model.frame_s = 0.002
    await run(rig.session(clip(".mkv", **VP9), decoder="dali"))
    await rig.settled()
    assert rig.counts().dropped == {}
    assert rig.frames() == list(range(45))


async def test_a_reader_does_not_run_ahead_of_an_engine_that_stands_still(readers, new_rig, clip):
    made = readers()
    rig = new_rig(slots=8, max_batch=4)
    rig.model.open.clear()
    async with running(rig.session(clip(".mkv", **VP9), decoder="dali")) as (task, _):
        await wait_until_async(lambda: made and made[0].given == 3, what="one run in work, one that waits, one in the reader's hands")
        await asyncio.wait({task}, timeout=0.3)
        assert made[0].given == 3
        assert rig.machine.engine.lanes["markers"].pool.free >= 4, "half of the slots stay for the others"
        rig.model.open.set()
        await asyncio.wait_for(task, 10)
    await rig.settled()
    assert rig.frames() == list(range(45))


async def test_files_share_the_engine_with_cameras_that_are_decoded_here(library, rig, clip, rtsp_server):
    rtsp_server.add("/door", clip(".mp4", frames=50, camera=1), speed=2)
    live = asyncio.create_task(rig.session(rtsp_server.url("/door"), name="live").run(stop := asyncio.Event()))
    await asyncio.gather(run(rig.session(clip(".mkv", **VP9), decoder="dali")), run(rig.session(clip(".mp4"), name="file")))
    await wait_until_async(lambda: len(rig.frames("live")) >= 20, what="frames of the live camera")
    stop.set()
    await live
    for name in ("door", "file", "live"):
        await rig.settled(name)
    assert rig.frames() == list(range(45))
    assert rig.frames("file") == list(range(50))
    assert rig.counts("live").dropped == {}


# --- ends


async def test_stop_lets_what_was_received_go_through(library, new_rig, clip):
    rig = new_rig(slots=8, max_batch=4)
    rig.model.frame_s = 0.01
    async with running(rig.session(clip(".mkv", **VP9 | {"frames": 100}), decoder="dali")) as (task, stop):
        await wait_until_async(lambda: len(rig.seen) >= 5, what="five frames")
        stop.set()
        await asyncio.wait_for(task, 10)
    await rig.settled()
    counts = rig.counts()
    assert counts.received < 100
    assert rig.frames() == list(range(counts.published))
    assert counts.received - counts.published <= 16, "a run in the reader's hands at most"
    assert set(counts.dropped) <= {DropReason.SHUTDOWN}


async def test_a_cancelled_session_gives_up_what_waits(readers, new_rig, clip):
    made = readers()
    rig = new_rig(slots=8, max_batch=4)
    rig.model.open.clear()
    task = asyncio.create_task(rig.session(clip(".mkv", **VP9), decoder="dali").run(asyncio.Event()))
    await wait_until_async(lambda: made and made[0].given == 3 and rig.counts().received == 24, what="the reader waits")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 2)
    rig.model.open.set()
    await wait_until_async(lambda: rig.counts().in_flight == 0, what="all accounted for")
    assert rig.counts().dropped[DropReason.SHUTDOWN] >= 16


async def test_stop_does_not_wait_for_a_reader_that_hangs(readers, rig, clip):
    release = threading.Event()
    readers(before=lambda number: number < 2 or release.wait(20))
    async with running(rig.session(clip(".mkv", **VP9), decoder="dali")) as (task, stop):
        await wait_until_async(lambda: len(rig.seen) == 16, what="two runs")
        stop.set()
        await asyncio.wait_for(task, 3)
    assert rig.frames() == list(range(16))
    release.set()


async def test_frames_before_an_error_are_classified_and_the_session_says_what_happened(readers, rig, clip):
    def fail(number):
        if number == 2:
            raise DecodeError("DALI cannot decode it: damaged")

    readers(before=fail)
    with pytest.raises(DecodeError, match="damaged"):
        await run(rig.session(clip(".mkv", **VP9), decoder="dali"))
    await rig.settled()
    assert rig.frames() == list(range(16))
    assert rig.counts().dropped == {}


async def test_samples_that_do_not_fit_the_model_end_the_session_and_give_the_slots_back(readers, rig, clip, monkeypatch):
    made = readers()
    monkeypatch.setattr("streamd.camera.backlog.recipe", lambda spec, info, dtype: recipe(SMALL, info, dtype))
    with pytest.raises(StreamdError, match="reading ahead failed: "):
        await run(rig.session(clip(".mkv", **VP9), decoder="dali"))
    await wait_until_async(made[0].is_closed.is_set, what="the reader has ended")
    assert rig.frames() == []
    assert rig.machine.engine.lanes["markers"].pool.free == 64
    counts = rig.counts()
    assert counts.dropped == {DropReason.SHUTDOWN: counts.received}


async def test_where_the_engine_runs_on_the_cpu_dali_is_refused_with_a_sentence(rig, clip):
    with pytest.raises(DecoderUnavailable, match=r"^decoder: dali needs a GPU, and the engine runs on the CPU$"):
        await run(rig.session(clip(".mp4"), decoder="dali"))


async def test_a_camera_that_dali_cannot_serve_fails_with_the_reason_in_its_state(rig, clip):
    await asyncio.wait_for(rig.camera(clip(".mp4"), decoder="dali").run(), 10)
    assert rig.phases() == ["connecting", "failed"]
    assert rig.state("failed").reason == "decoder"
    assert "needs a GPU" in rig.state("failed").detail


async def test_a_file_that_is_not_there_is_an_error(rig, tmp_path):
    with pytest.raises(NotFound):
        await run(rig.session(tmp_path / "no.mp4", decoder="dali"))


async def test_an_engine_that_ended_meanwhile_leaves_no_frame_in_flight(readers, new_rig, clip):
    release = threading.Event()
    readers(before=lambda number: number < 1 or release.wait(20))
    rig = new_rig()
    async with running(rig.session(clip(".mkv", **VP9), decoder="dali")) as (task, _):
        await wait_until_async(lambda: len(rig.seen) == 8, what="a run")
        rig.engine.stop()
        release.set()
        await asyncio.wait_for(task, 10)
    assert rig.counts().dropped == {DropReason.SHUTDOWN: 37}


# --- what is asked of DALI


@pytest.mark.parametrize(
    ("size", "origin"), [((320, 240), (16, 58)), ((240, 320), (58, 16)), ((256, 256), (16, 16)), ((160, 90), (-76, 0))]
)
def test_the_recipe_says_what_the_models_own_transforms_do(clip, size, origin):
    source = FileSource(clip(".mp4", size=size, frames=2), loop=False)
    info = source.open()
    source.close()
    resize = (72, 224) if size == (160, 90) else 256
    spec = InputSpec(resize, (224, 224), "bicubic", (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    made = recipe(spec, info, torch.float16)
    assert made.resized == spec.resized(size[1], size[0])
    assert (made.origin, made.size, made.interpolation) == (origin, (224, 224), "bicubic")
    assert (made.mean, made.std, made.dtype) == (spec.mean, spec.std, torch.float16)
