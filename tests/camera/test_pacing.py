"""A file that plays the camera: packets are due by their decode time stamps, and stamps that jump make nobody wait."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.camera.pacing import Pacer
from streamd.types import Packet, StreamInfo

TICKS = 90_000


def stream(*, frame_rate: Fraction | None = Fraction(25), time_base: Fraction = Fraction(1, TICKS)) -> StreamInfo:
    return StreamInfo(codec="h264", width=320, height=240, time_base=time_base, frame_rate=frame_rate)


def packet(dts: int | None, *, pts: int | None = None) -> Packet:
    return Packet(
        data=b"",
        token=0,
        pts=pts,
        dts=dts,
        is_keyframe=False,
        is_corrupt=False,
        is_discard=False,
        received_ns=0,
        captured_ns=0,
    )


def dues(stamps: list[int | None], *, now_s: float = 100.0, info: StreamInfo | None = None) -> list[float]:
    """When each packet is due if each is asked about just as the one before it is passed on; seconds after `now_s`."""
    pacer, due_s, result = Pacer(info or stream()), now_s, []
    for stamp in stamps:
        due_s = pacer.due_s(packet(stamp), now_s=due_s)
        result.append(due_s - now_s)
    return result


@settings(deadline=None)
@given(
    st.integers(-(2**31), 2**40),
    st.lists(st.integers(0, 10 * TICKS - 1), max_size=50),
    st.floats(0, 1e7),
    st.lists(st.floats(0, 30), min_size=51, max_size=51),
)
def test_packets_are_as_far_apart_as_their_decode_stamps_however_late_they_are_asked_about(first, steps, now_s, delays_s):
    pacer, stamp, media_ticks = Pacer(stream()), first, 0
    begin_s = pacer.due_s(packet(stamp), now_s=now_s)
    assert begin_s == pytest.approx(now_s, abs=1e-6)
    for step, delay_s in zip(steps, delays_s, strict=False):
        stamp += step
        media_ticks += step
        now_s += delay_s
        assert pacer.due_s(packet(stamp), now_s=now_s) == pytest.approx(begin_s + media_ticks / TICKS, abs=1e-5)


def test_decode_order_counts_and_not_display_order():
    pacer = Pacer(stream())
    order = [(0, 3600), (3600, 14400), (7200, 7200), (10800, 10800)]
    assert [pacer.due_s(packet(dts, pts=pts), now_s=5.0) for dts, pts in order] == pytest.approx([5.0, 5.04, 5.08, 5.12])


def test_without_decode_stamps_the_presentation_stamps_count():
    pacer = Pacer(stream())
    assert [pacer.due_s(packet(None, pts=pts), now_s=5.0) for pts in (900, 4500)] == pytest.approx([5.0, 5.04])


@pytest.mark.parametrize(
    ("frame_rate", "step_s"),
    [(Fraction(10), 0.1), (Fraction(30000, 1001), 1001 / 30000), (None, 0.04), (Fraction(90_000), 0.04), (Fraction(0), 0.04)],
)
def test_without_any_stamps_packets_come_at_the_frame_rate_and_at_25_where_it_is_unknown_or_absurd(frame_rate, step_s):
    assert dues([None] * 4, info=stream(frame_rate=frame_rate)) == pytest.approx([0, step_s, 2 * step_s, 3 * step_s])


def test_a_packet_without_a_stamp_follows_a_frame_after_the_one_before():
    assert dues([0, None, None, 3 * 3600]) == pytest.approx([0, 0.04, 0.08, 0.12])


@pytest.mark.parametrize("jump", [-1, -3600, -(2**33) + 3600, 10 * TICKS + 1, 2**33])
def test_after_a_jump_of_the_stamps_the_next_packet_is_due_at_once_and_the_pace_goes_on(jump):
    begin = 2**33
    after = begin + 3600 + jump
    assert dues([begin, begin + 3600, after, after + 3600]) == pytest.approx([0, 0.04, 0.04, 0.08], abs=1e-5)


def test_a_pause_of_ten_seconds_is_kept():
    assert dues([0, 10 * TICKS, 10 * TICKS + 3600]) == pytest.approx([0, 10, 10.04])


def test_a_transport_streams_clock_that_wraps_after_33_bits_stops_nothing():
    stamps = [(2**33 - 3 * 3600 + n * 3600) % 2**33 for n in range(8)]
    paced = dues(stamps)
    assert paced == sorted(paced)
    assert paced[-1] <= 7 * 0.04 + 1e-6
    assert paced[-1] >= 6 * 0.04 - 1e-6


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(-(2**33), 2**33)), min_size=1, max_size=60))
def test_nothing_is_ever_due_more_than_ten_seconds_after_the_packet_before_it(stamps):
    paced = dues(stamps)
    assert all(-1e-4 <= later - earlier <= 10 + 1e-4 for earlier, later in zip([0.0, *paced], paced, strict=False))
