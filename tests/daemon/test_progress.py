"""When a worker counts as stuck."""

from streamd.daemon.progress import Progress
from streamd.types import DropReason, Ledger
from streamd.worker.protocol import Counts


def counts(*, sink_queue=0, batches=0, **ledger):
    return Counts({"door": Ledger(**ledger)}, sink_queue=sink_queue, batches=batches, latency=[], cpu_s=0.0, at_ns=0)


def verdicts(make):
    """Of a worker that is asked each second for a minute."""
    progress = Progress(limit_s=30)
    return {progress.counted(make(second), float(second)) for second in range(60)} - {None}


def test_frames_that_come_in_and_are_not_decoded_mean_a_hang():
    assert verdicts(lambda s: counts(received=25 * s)) == {"decoded nothing for 30 s while frames came in"}


def test_frames_that_find_no_room_while_nothing_is_classified_mean_a_hang():
    stuck = verdicts(lambda s: counts(received=25 * s, decoded=25 * s, dropped={DropReason.OVERLOAD: 25 * s}))
    assert stuck == {"classified nothing for 30 s while frames waited"}


def test_a_worker_that_publishes_is_well():
    assert verdicts(lambda s: counts(received=25 * s, decoded=25 * s, published=25 * s, batches=s)) == set()


def test_a_camera_that_is_down_is_no_hang():
    assert verdicts(lambda _: counts(received=700, decoded=690, published=690)) == set()


def test_a_camera_that_sends_a_frame_a_second_into_a_decoder_that_holds_some_back_is_no_hang():
    assert verdicts(lambda s: counts(received=s)) == set()


def test_an_outage_of_the_sink_is_no_hang():
    queued = verdicts(lambda s: counts(received=25 * s, decoded=25 * s, sink_queue=25 * s, batches=s))
    full = verdicts(lambda s: counts(received=25 * s, decoded=25 * s, sink_queue=50, batches=s, dropped={DropReason.SINK_FULL: 25 * s}))
    assert queued | full == set()


def test_overload_alone_is_no_hang():
    overload = {DropReason.OVERLOAD: 20 * 25}
    assert verdicts(lambda s: counts(received=25 * s, decoded=5 * s, batches=s, dropped={**overload, DropReason.STALE: 5 * s})) == set()
