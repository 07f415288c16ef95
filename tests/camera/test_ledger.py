"""Each frame is booked once, by whichever thread, and results say how many frames were missed before them."""

from __future__ import annotations

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.camera.ledger import CameraLedger
from streamd.types import DropReason

DROPS = st.tuples(st.sampled_from(DropReason), st.integers(0, 5))


@settings(deadline=None)
@given(st.lists(st.one_of(st.just("received"), st.just("published"), DROPS)))
def test_received_equals_published_and_dropped_and_in_flight(bookings):
    ledger, received, published, dropped = CameraLedger(), 0, 0, 0
    for booking in bookings:
        if booking == "received":
            ledger.received()
            received += 1
        elif booking == "published":
            ledger.published(2)
            published += 2
        else:
            ledger.dropped(*booking)
            dropped += booking[1]
    counts = ledger.snapshot()
    assert (counts.received, counts.published, sum(counts.dropped.values())) == (received, published, dropped)
    assert counts.in_flight == received - published - dropped
    assert 0 not in counts.dropped.values()


@settings(deadline=None)
@given(st.lists(DROPS))
def test_missed_frames_are_those_that_nobody_asked_to_leave_out(drops):
    ledger = CameraLedger()
    for reason, count in drops:
        ledger.dropped(reason, count)
    wanted_away = {DropReason.SAMPLED_OUT, DropReason.CUT}
    assert ledger.take_missed() == sum(count for reason, count in drops if reason not in wanted_away)
    assert ledger.take_missed() == 0


def test_decoded_frames_are_counted_but_stay_in_flight():
    ledger = CameraLedger()
    ledger.received()
    ledger.decoded()
    counts = ledger.snapshot()
    assert (counts.decoded, counts.in_flight) == (1, 1)


def test_a_snapshot_does_not_change_afterwards():
    ledger = CameraLedger()
    ledger.dropped(DropReason.STALE)
    before = ledger.snapshot()
    ledger.received()
    ledger.dropped(DropReason.STALE)
    assert (before.received, before.dropped) == (0, {"stale": 1})


def test_no_booking_is_lost_between_threads():
    ledger, rounds, begin = CameraLedger(), 2000, threading.Barrier(4)

    def book() -> None:
        begin.wait()
        for _ in range(rounds):
            ledger.received()
            ledger.received()
            ledger.published(1)
            ledger.dropped(DropReason.OVERLOAD)
            assert ledger.snapshot().in_flight >= 0

    threads = [threading.Thread(target=book) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = ledger.snapshot()
    assert (counts.received, counts.published, counts.dropped) == (8 * rounds, 4 * rounds, {"overload": 4 * rounds})
    assert (counts.in_flight, ledger.take_missed()) == (0, 4 * rounds)
