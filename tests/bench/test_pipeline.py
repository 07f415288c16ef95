"""Loads as configurations, what live cameras are promised, and the search for how many fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamd.bench import pipeline
from streamd.bench.pipeline import Setup, Slo, capacity, private_redis
from streamd.errors import StreamdError

SETUP = Setup(Path("/clips/street.mp4"), {"builtin": "efficientnet-lite0"}, "cpu", None, "redis://127.0.0.1:1/0", {})
SLO = Slo(percent=99, within_ms=100)


@pytest.mark.parametrize("paced", [False, True])
def test_all_cameras_play_the_clip_for_ever(paced):
    config = SETUP.config(3, paced=paced)
    assert list(config.cameras) == ["bench-0", "bench-1", "bench-2"]
    assert {(camera.loop, camera.realtime) for camera in config.cameras.values()} == {(True, paced)}
    assert config.engine.workers == "auto"


def test_a_clip_that_is_played_once_is_not_looped_and_may_go_through_dali():
    config = replace(SETUP, once=True, decoder="dali").config(2, paced=False)
    assert {(camera.loop, camera.decoder) for camera in config.cameras.values()} == {(False, "dali")}


def test_engine_options_and_workers_reach_the_configuration():
    config = replace(SETUP, workers=2, engine={"max_batch": 5}).config(1, paced=False)
    assert (config.engine.workers, config.engine.max_batch) == (2, 5)


@pytest.mark.parametrize(
    ("change", "is_met"),
    [
        ({}, True),
        ({"p99_ms": 100.0}, True),
        ({"p99_ms": 100.1}, False),
        ({"p99_ms": None}, False),
        ({"dropped": {"overload": 1}}, False),
        ({"fps": 39.6}, True),
        ({"fps": 39.5}, False),
    ],
)
def test_a_promise_is_kept_without_drops_in_time_and_at_the_frame_rate(change, is_met, measured):
    assert SLO.is_met(replace(measured, **change), expected_fps=40) is is_met


def test_a_promise_of_the_median_looks_at_the_median(measured):
    slo = Slo(percent=50, within_ms=30)
    assert slo.is_met(measured, expected_fps=40)
    assert not slo.is_met(replace(measured, p50_ms=30.1), expected_fps=40)


async def found(fitting, start, measured):
    """The result of the search on a machine that `fitting` cameras fit on, and what it tried."""
    tried = []

    async def run(setup, cameras, *, paced, seconds):
        assert paced
        return replace(measured, cameras=cameras, fps=10.0 * cameras, dropped={} if cameras <= fitting else {"overload": 1})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "run", run)
        result = await capacity(
            SETUP, slo=SLO, camera_fps=10, seconds=1, start=start, tell=lambda what, met: tried.append((what.cameras, met))
        )
    return *result, tried


@pytest.mark.parametrize("start", [1, 3, 8, 50])
@pytest.mark.parametrize("fitting", [1, 2, 7, 8, 9, 31])
async def test_the_largest_number_that_fits_is_found(fitting, start, measured):
    cameras, best, tried = await found(fitting, start, measured)
    assert cameras == best.cameras == fitting
    assert len(tried) == len(set(tried)) <= 10
    assert all(met == (number <= fitting) for number, met in tried)


@pytest.mark.parametrize("start", [1, 8])
async def test_not_even_one_camera_may_fit(start, measured):
    cameras, best, tried = await found(0, start, measured)
    assert (cameras, best) == (0, None)
    assert tried[-1] == (1, False)


@pytest.mark.parametrize("fitting", [100, 257, 1000])
async def test_large_numbers_are_found_to_three_per_cent(fitting, measured):
    cameras, _, tried = await found(fitting, 8, measured)
    assert fitting * 0.97 <= cameras <= fitting
    assert len(tried) <= 14


async def test_what_an_overloaded_machine_did_says_where_to_look(measured, monkeypatch):
    tried = []

    async def run(setup, cameras, *, paced, seconds):
        tried.append(cameras)
        return replace(measured, cameras=cameras, fps=10.0 * min(cameras, 150), dropped={} if cameras <= 150 else {"overload": 1})

    monkeypatch.setattr(pipeline, "run", run)
    cameras, _ = await capacity(SETUP, slo=SLO, camera_fps=10, seconds=1, start=200, tell=lambda what, met: None)
    assert tried == [200, 145, 172, 158, 151, 148]
    assert cameras == 148


def test_the_memory_of_a_further_camera_is_the_slope(measured):
    def grown(cameras, memory):
        return replace(measured, cameras=cameras, usage=replace(measured.usage, gpu_memory_mb=memory))

    assert pipeline.gpu_mb_per_camera([grown(1, 1030.0), grown(2, 1060.0), grown(4, 1120.0)]) == pytest.approx(30)
    assert pipeline.gpu_mb_per_camera([grown(2, 1030.0), grown(2, 1060.0)]) is None
    assert pipeline.gpu_mb_per_camera([grown(1, None), grown(2, None)]) is None


async def test_a_private_redis_answers_and_is_gone_afterwards(tmp_path):
    redis = pytest.importorskip("redis.asyncio")
    async with private_redis(tmp_path) as url, redis.from_url(url) as client:
        assert await client.ping()
    gone = redis.from_url(url)
    with pytest.raises(redis.ConnectionError):
        await gone.ping()
    await gone.aclose()


async def test_a_paced_load_keeps_the_clips_frame_rate_and_publishes_every_frame(small_clip, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "_SETTLE_S", 0.1)
    async with private_redis(tmp_path) as url:
        setup = replace(SETUP, clip=small_clip, redis_url=url, workers=1)
        measured = await pipeline.run(setup, 1, paced=True, seconds=1.5)
    assert (measured.cameras, measured.workers, measured.jain) == (1, 1, 1)
    assert measured.fps == pytest.approx(10, rel=0.15)
    assert measured.is_lossless
    assert 1 < measured.p50_ms <= measured.p99_ms


async def test_a_camera_that_fails_ends_the_load_with_its_name(tmp_path, monkeypatch):
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    async with private_redis(tmp_path) as url:
        setup = replace(SETUP, clip=tmp_path / "broken.mp4", redis_url=url, workers=1)
        load = pipeline.run(setup, 1, paced=True, seconds=1.0)
        with pytest.raises(StreamdError, match="camera bench-0 is"):
            await load
