"""More than the machine can do, simulated (see support/overload.py), and once for real: results stay young, come at the speed of the
bottleneck, and every camera is slowed alike, or by its priority.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from support.overload import Outcome, Plant, Simulation, Source

LOW, NORMAL, HIGH = 3, 4, 5
PLENTY = 1e5
"""Frames a second that are no limit."""


def cameras(count: int, *, gops: Sequence[int] = (30,), ranks: Sequence[int] = (NORMAL,), **fields) -> list[Source]:
    return [Source(f"c{n}", gop=gops[n % len(gops)], rank=ranks[n % len(ranks)], **fields) for n in range(count)]


def run(sources: Sequence[Source], plant: Plant, *, seconds: float = 10, warm_up_s: float = 6) -> Outcome:
    outcome = Simulation(sources, plant).run(seconds, warm_up_s=warm_up_s)
    for camera in outcome.cameras:
        assert camera.ledger.in_flight == 0
        assert camera.ledger.received == camera.token
    return outcome


@pytest.mark.parametrize("gop", [1, 30, 60])
def test_at_twice_what_the_decoder_can_all_of_it_is_used_evenly_and_young(gop):
    outcome = run(cameras(40, gops=[gop]), Plant(decode_fps=600, model_fps=PLENTY))
    assert outcome.fps() > 0.95 * 600
    assert outcome.jain > 0.99
    assert outcome.age_s(50) < 0.1
    assert outcome.age_s(99) < 0.45


def test_cameras_with_few_key_frames_get_as_much_as_the_others():
    outcome = run(cameras(40, gops=[15, 30, 60, 300]), Plant(decode_fps=600, model_fps=PLENTY), seconds=40, warm_up_s=10)
    assert outcome.fps() > 0.95 * 600
    assert outcome.jain > 0.99
    assert outcome.age_s(99) <= 0.5


def test_slow_and_fast_cameras_lose_the_same_share():
    sources = cameras(20) + [Source(f"slow{n}", fps=5, rank=NORMAL) for n in range(20)]
    outcome = run(sources, Plant(decode_fps=350, model_fps=PLENTY), seconds=20, warm_up_s=20)
    kept = [sum(results) / 20 / 20 / fps for results, fps in ((outcome.results()[:20], 30), (outcome.results()[20:], 5))]
    assert kept == pytest.approx([0.5, 0.5], abs=0.1)


@pytest.mark.parametrize("factor", [1.1, 2])
def test_above_what_the_model_can_the_newest_frames_are_classified_and_evenly(factor):
    outcome = run(cameras(40), Plant(decode_fps=PLENTY, model_fps=1200 / factor))
    assert outcome.fps() > 0.98 * 1200 / factor
    assert outcome.jain > 0.99
    assert outcome.age_s(99) < 0.15, "two batches of 53 ms, and little more"


def test_a_model_whose_full_batch_takes_longer_than_max_age_still_gives_young_results():
    outcome = run(cameras(8, fps=10), Plant(decode_fps=PLENTY, model_fps=40, max_batch=32), seconds=30)
    assert outcome.fps() > 0.95 * 40
    assert outcome.jain > 0.99
    assert outcome.age_s(99) <= 0.5


def test_two_bottlenecks_at_once_are_no_worse_than_one():
    outcome = run(cameras(40), Plant(decode_fps=600, model_fps=600))
    assert outcome.fps() > 0.95 * 600
    assert outcome.jain > 0.99
    assert outcome.age_s(99) <= 0.5


@pytest.mark.parametrize(
    "plant", [Plant(decode_fps=600, model_fps=PLENTY), Plant(decode_fps=PLENTY, model_fps=600)], ids=["decoder", "model"]
)
def test_a_camera_of_higher_priority_loses_nothing_while_lower_ones_have_some(plant):
    outcome = run(cameras(48, ranks=[HIGH, NORMAL, NORMAL, LOW]), plant)
    assert outcome.lost(HIGH) == 0
    assert outcome.fps(LOW) < 0.02 * 600
    assert outcome.fps() > 0.95 * 600
    normal = outcome.results(NORMAL)
    assert sum(normal) ** 2 > 0.99 * len(normal) * sum(share**2 for share in normal)


@pytest.mark.parametrize(
    "plant", [Plant(decode_fps=1230, model_fps=PLENTY), Plant(decode_fps=PLENTY, model_fps=1230)], ids=["decoder", "model"]
)
def test_just_below_what_the_machine_can_nothing_is_lost(plant):
    outcome = run(cameras(40, gops=[250], ranks=[HIGH, NORMAL, LOW]), plant)
    assert sum(outcome.lost(rank) for rank in (LOW, NORMAL, HIGH)) == 0
    assert outcome.age_s(99) < 0.05


def test_a_short_stall_of_all_decoding_costs_no_frame():
    outcome = run(cameras(40, gops=[250]), Plant(decode_fps=1700, model_fps=PLENTY, stall_at_s=10, stall_s=0.29))
    assert outcome.lost(NORMAL) == 0
    assert outcome.age_s(100) > 0.29


def test_after_a_long_stall_decoding_goes_on_at_the_next_key_frames():
    outcome = run(cameras(40), Plant(decode_fps=1700, model_fps=PLENTY, stall_at_s=10, stall_s=2))
    assert outcome.age_s(100) <= 0.5
    assert outcome.lost(NORMAL) < 40 * 30 * (2 + 1)


async def test_real_cameras_twice_too_fast_for_a_real_model(new_rig, clip):
    """8 cameras of 25 frames a second, and a model that takes 10 ms for each: 100 of 200 frames a second."""
    rig, names, seconds = new_rig(slots=256, max_batch=32), [f"cam{n}" for n in range(8)], 4
    rig.model.frame_s = 0.01
    path = clip(".mp4", frames=50, gop=25)
    live = {"realtime": True, "loop": True, "max_age": 0.5}
    running = [rig.camera(path, name=name, priority="high" if name == "cam0" else "normal", **live) for name in names]
    tasks = [asyncio.create_task(camera.run()) for camera in running]
    await asyncio.sleep(seconds)
    for camera in running:
        camera.stop()
    await asyncio.wait_for(asyncio.gather(*tasks), 10)

    results = Counter(seen.camera for seen in rig.seen)
    equals = [results[name] for name in names[1:]]
    assert sum(equals) ** 2 / (7 * sum(count**2 for count in equals)) > 0.9
    assert results["cam0"] > 1.5 * max(equals)
    assert sum(results.values()) > 0.25 * 100 * seconds  # of what the model can do, on a machine that may be busy
    ages_s = sorted(seen.age_s for seen in rig.seen)
    assert ages_s[len(ages_s) * 95 // 100] < 0.5
    dropped = Counter()
    for name in names:
        counts = rig.counts(name)
        assert counts.received == counts.published + sum(counts.dropped.values())
        dropped.update(counts.dropped)
    assert dropped["overload"] + dropped["stale"] > 0.3 * 100 * seconds
