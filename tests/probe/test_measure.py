"""What packets say of a stream, without one being decoded."""

from fractions import Fraction

import pytest

from streamd.probe import measure
from streamd.probe.report import Gop
from streamd.probe.watch import Seen

TICK = Fraction(1, 90_000)


def packets(*, count: int, gop: int, fps: int = 25, size_bytes: int = 1000, first_key: int = 0) -> list[Seen]:
    return [
        Seen(
            size_bytes,
            pts=number * 90_000 // fps,
            is_keyframe=number >= first_key and (number - first_key) % gop == 0,
            is_corrupt=False,
            received_ns=0,
        )
        for number in range(count)
    ]


def reordered(seen: list[Seen]) -> list[Seen]:
    """As with one B-frame between two others: I P B P B, so the last one that was read is shown after one that was not."""
    order = [0, *(number for pair in range(1, len(seen) - 1, 2) for number in (pair + 1, pair))]
    return [seen[number] for number in order]


@pytest.mark.parametrize("fps", [5, 25, 30])
def test_the_frame_rate_is_that_of_the_time_stamps(fps):
    assert measure.frame_rate(packets(count=60, gop=10, fps=fps), TICK) == pytest.approx(fps)


def test_frames_that_are_yet_to_come_do_not_lower_the_frame_rate():
    seen = reordered(packets(count=61, gop=100))
    assert measure.frame_rate(seen[:-1], TICK) == pytest.approx(25)


@pytest.mark.parametrize("stamps", [[], [None, None, None], [7], [7, 7]])
def test_without_two_time_stamps_there_is_no_frame_rate(stamps):
    seen = [Seen(1000, pts=pts, is_keyframe=True, is_corrupt=False, received_ns=0) for pts in stamps]
    assert measure.frame_rate(seen, TICK) is None


def test_the_bit_rate_is_over_the_videos_own_time():
    assert measure.bit_rate(packets(count=50, gop=25), 2.0) == 200_000
    assert measure.bit_rate(packets(count=50, gop=25), None) is None


def test_b_frames_are_seen_by_their_order():
    seen = packets(count=21, gop=10)
    assert not measure.has_b_frames(seen)
    assert measure.has_b_frames(reordered(seen))


def test_a_gop_is_counted_from_key_frame_to_key_frame():
    assert measure.gop(packets(count=110, gop=50), 25.0) == Gop(frames=50, shortest=50, seconds=2.0)
    assert measure.gop(packets(count=3, gop=1), None) == Gop(frames=1, shortest=1)


def test_one_key_frame_gives_only_a_lower_bound():
    assert measure.gop(packets(count=40, gop=100, first_key=10), 25.0) == Gop(at_least=30)
    assert measure.gop(packets(count=5, gop=100, first_key=50), 25.0) == Gop(at_least=5)
