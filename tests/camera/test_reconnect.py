"""Waits double up to a longest one, vary by a fifth, begin anew after healthy time, and are long after refused credentials."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.camera.reconnect import Backoff
from streamd.config.types import ReconnectConfig

CONFIG = ReconnectConfig(initial=1.0, max=60.0, healthy_after=30.0, refused=300.0)
CHANCES = st.floats(0, 1, exclude_max=True)


def wait_s(backoff: Backoff, *, lasted_s: float = 0.0, refused: bool = False, chance: float = 0.5) -> float:
    return backoff.next_wait_s(lasted_s=lasted_s, refused=refused, chance=chance)


def test_waits_double_up_to_the_longest():
    backoff = Backoff(CONFIG)
    assert [wait_s(backoff) for _ in range(9)] == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60])


def test_after_years_of_failures_the_wait_is_still_the_longest():
    assert wait_s(Backoff(CONFIG, failures=1_000_000)) == pytest.approx(60)


@settings(deadline=None)
@given(st.integers(0, 200), CHANCES, st.floats(0.01, 10), st.floats(10, 1000))
def test_a_wait_is_within_a_fifth_of_what_it_would_be_without_chance(failures, chance, initial_s, longest_s):
    config = ReconnectConfig(initial=initial_s, max=longest_s)
    expected_s = min(initial_s * 2.0**failures, longest_s)
    varied_s = wait_s(Backoff(config, failures=failures), chance=chance)
    assert 0.8 * expected_s * (1 - 1e-9) <= varied_s <= 1.2 * expected_s * (1 + 1e-9)


def test_chance_spreads_waits_over_the_whole_range():
    assert wait_s(Backoff(CONFIG), chance=0.0) == pytest.approx(0.8)
    assert wait_s(Backoff(CONFIG), chance=1.0) == pytest.approx(1.2)


def test_a_connection_that_was_healthy_long_enough_begins_anew():
    backoff = Backoff(CONFIG, failures=5)
    assert wait_s(backoff, lasted_s=30.0) == pytest.approx(1)
    assert wait_s(backoff) == pytest.approx(2)


def test_a_connection_that_soon_broke_off_goes_on_doubling():
    backoff = Backoff(CONFIG, failures=2)
    assert wait_s(backoff, lasted_s=29.9) == pytest.approx(4)
    assert wait_s(backoff, lasted_s=29.9) == pytest.approx(8)


@settings(deadline=None)
@given(st.integers(0, 100), CHANCES)
def test_refused_credentials_are_tried_slowly_from_the_first_time_on(failures, chance):
    assert 240 <= wait_s(Backoff(CONFIG, failures=failures), refused=True, chance=chance) <= 360


def test_a_refusal_does_not_make_later_waits_longer():
    backoff = Backoff(CONFIG)
    assert wait_s(backoff) == pytest.approx(1)
    assert wait_s(backoff, refused=True) == pytest.approx(300)
    assert wait_s(backoff) == pytest.approx(2)
