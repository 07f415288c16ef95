"""The histogram of durations, against the durations themselves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamd.histogram import BUCKETS, DurationHistogram

SHORTEST_S = 1e-4
LONGEST_S = SHORTEST_S * 2 ** ((BUCKETS - 1) / 16)
BUCKET = 2 ** (1 / 16)
durations = st.lists(st.floats(SHORTEST_S, LONGEST_S), min_size=1, max_size=60)
percents = st.sampled_from([0.1, 1, 25, 50, 75, 90, 99, 99.9, 100])


def histogram(values):
    filled = DurationHistogram()
    for value in values:
        filled.add(value)
    return filled


def true_percentile(values, percent):
    return sorted(values)[max(math.ceil(len(values) * percent / 100), 1) - 1]


@given(values=durations, percent=percents)
def test_a_percentile_is_never_below_the_true_one_and_less_than_a_bucket_above_it(values, percent):
    true = true_percentile(values, percent)
    assert true * (1 - 1e-12) <= histogram(values).percentile_s(percent) <= true * BUCKET * (1 + 1e-12)


def test_a_bucket_is_four_and_a_half_per_cent_wide():
    assert 1.04 < BUCKET < 1.045


@given(first=durations, second=durations)
def test_sums_are_what_one_histogram_had_counted(first, second):
    together = histogram(first) + histogram(second)
    assert together.counts == histogram(first + second).counts
    assert together.total == len(first) + len(second)


@given(before=durations, since=durations)
def test_a_difference_is_what_was_counted_since(before, since):
    assert (histogram(before + since) - histogram(before)).counts == histogram(since).counts


def test_of_nothing_there_is_no_percentile():
    assert DurationHistogram().percentile_s(50) is None
    assert (histogram([1.0]) - histogram([1.0])).percentile_s(99) is None


@pytest.mark.parametrize("duration_s", [-1.0, 0.0, 1e-9, SHORTEST_S])
def test_the_shortest_durations_count_as_a_tenth_of_a_millisecond(duration_s):
    assert histogram([duration_s]).percentile_s(50) == SHORTEST_S


@pytest.mark.parametrize("duration_s", [LONGEST_S, 2000.0, 1e12])
def test_the_longest_durations_count_as_the_last_bucket(duration_s):
    assert histogram([duration_s]).percentile_s(50) == pytest.approx(LONGEST_S)
    assert 1606 < LONGEST_S < 1607


def test_a_histogram_made_from_counts_keeps_its_own():
    counts = histogram([0.01, 0.02]).counts
    copy = DurationHistogram(counts)
    copy.add(0.01)
    assert copy.total == 3
    assert sum(counts) == 2
