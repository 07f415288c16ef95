"""Sampling by time: the average rate is the wanted one whatever the stream does, and never more frames than the stream has."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.camera.sampling import TimeSampler

NTSC_FILM = Fraction(24000, 1001)
NTSC = Fraction(30000, 1001)


def picked(times_s: list[float], fps: float) -> list[float]:
    sampler = TimeSampler(fps)
    return [time_s for time_s in times_s if sampler.wants(time_s)]


def regular(fps: Fraction | float, *, seconds: float, from_s: float = 0.0) -> list[float]:
    return [from_s + float(n / fps) for n in range(int(seconds * fps))]


def rate(times_s: list[float], seconds: float) -> float:
    return len(times_s) / seconds


def test_without_a_rate_every_frame_is_wanted():
    sampler = TimeSampler(None)
    assert all(sampler.wants(time_s) for time_s in (0.0, 0.0, -5.0, 1e9))


def test_the_first_frame_is_wanted_whenever_it_comes():
    assert picked([1234.5], 0.01) == [1234.5]


def test_a_rate_that_divides_the_streams_own_gives_evenly_spaced_frames():
    times_s = regular(30, seconds=10)
    assert picked(times_s, 5) == times_s[::6]


def test_a_rate_that_does_not_divide_takes_the_first_frame_in_each_period():
    assert [round(time_s * 25) for time_s in picked(regular(25, seconds=1), 10)] == [0, 3, 5, 8, 10, 13, 15, 18, 20, 23]


@pytest.mark.parametrize(
    ("stream_fps", "fps"),
    [
        (30, 5),
        (25, 10),
        (NTSC_FILM, 7),
        (Fraction(30000, 1001), 29),
        (25, 24),
        (60, 0.5),
        (15, 15),
        (30, 30),
        (NTSC_FILM, float(NTSC_FILM)),
    ],
)
@pytest.mark.parametrize("ticks_per_s", [90_000, 1000, 600])
@pytest.mark.parametrize("from_s", [0.0, 0.0167, 95443.7])
def test_the_average_rate_is_the_wanted_one_whatever_clock_rounds_the_stamps(stream_fps, fps, ticks_per_s, from_s):
    times_s = [round(time_s * ticks_per_s) / ticks_per_s for time_s in regular(stream_fps, seconds=200, from_s=from_s)]
    assert rate(picked(times_s, fps), 200) == pytest.approx(fps, rel=0.01, abs=0.01)


@pytest.mark.parametrize(("stream_fps", "fps"), [(30, 5), (25, 10), (NTSC_FILM, 7), (25, 25), (30, 29), (12, 10)])
@pytest.mark.parametrize("jitter", [0.1, 0.5, 0.9])
def test_the_average_rate_is_the_wanted_one_when_frames_jitter(stream_fps, fps, jitter):
    chance, step_s = random.Random(7), 1 / float(stream_fps)
    times_s = sorted(time_s + chance.uniform(-0.5, 0.5) * jitter * step_s for time_s in regular(stream_fps, seconds=200))
    assert rate(picked(times_s, fps), 200) == pytest.approx(fps, rel=0.02)


@pytest.mark.parametrize(("stream_fps", "fps"), [(5, 30), (25, 1000), (1, 1.5), (Fraction(1, 60), 5)])
def test_a_stream_that_is_slower_than_the_wanted_rate_is_taken_whole(stream_fps, fps):
    times_s = regular(stream_fps, seconds=600)
    assert picked(times_s, fps) == times_s


@settings(deadline=None)
@given(st.floats(0.1, 60), st.lists(st.floats(0, 0.3), min_size=1, max_size=200), st.floats(-100, 1e6))
def test_a_stream_with_any_rhythm_gives_no_more_than_the_wanted_rate_and_two_frames(fps, steps_s, from_s):
    times_s = [from_s]
    for step_s in steps_s:
        times_s.append(times_s[-1] + step_s)
    chosen = picked(times_s, fps)
    for first in range(len(chosen)):
        for last in range(first, len(chosen)):
            assert last - first + 1 <= (chosen[last] - chosen[first] + 0.001) * fps * 1.0001 + 3


@settings(deadline=None)
@given(st.floats(0.5, 30), st.integers(20, 200), st.randoms(use_true_random=False))
def test_a_stream_whose_frames_are_never_a_period_apart_gives_no_less_than_the_wanted_rate(fps, count, chance):
    times_s = [0.0]
    for _ in range(count):
        times_s.append(times_s[-1] + chance.uniform(0.01, 0.99) / fps)
    assert len(picked(times_s, fps)) >= int(times_s[-1] * fps * 0.9999)


@pytest.mark.parametrize("jump_s", [-0.5, -3600.0, 2.5, 3600.0, -(2**33) / 90_000])
def test_after_a_jump_of_the_clock_sampling_goes_on_at_once_and_at_the_same_rate(jump_s):
    before = regular(25, seconds=10, from_s=5000)
    after = regular(25, seconds=10, from_s=5010 + jump_s)
    sampler = TimeSampler(5)
    taken_before = [time_s for time_s in before if sampler.wants(time_s)]
    taken_after = [time_s for time_s in after if sampler.wants(time_s)]
    assert len(taken_before) == 50
    assert taken_after[0] <= after[0] + 0.4
    assert 48 <= len(taken_after) <= 51


@pytest.mark.parametrize("step_s", [0.0, -0.0001, -0.1, -0.199])
def test_frames_that_repeat_a_time_or_step_back_a_little_are_not_taken_again(step_s):
    sampler = TimeSampler(5)
    assert sampler.wants(10.0)
    assert not sampler.wants(10.0 + step_s)


def test_a_day_at_a_rate_that_no_clock_can_hold_exactly_loses_no_frame():
    sampler, frames = TimeSampler(10), 10 * 3600 * 6
    assert sum(sampler.wants(n / 10) for n in range(frames)) == frames
