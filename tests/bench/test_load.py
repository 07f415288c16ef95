"""What is made of two counts of each worker, and what ends a measurement."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamd.bench.load import Load, _jain, _measured
from streamd.bench.pipeline import Setup
from streamd.errors import StreamdError
from streamd.histogram import DurationHistogram
from streamd.records import CameraState, Phase
from streamd.types import Ledger
from streamd.worker.protocol import Changed, Counts


def counts(at_s, ledgers, *, batches=0, cpu_s=0.0, latencies_s=()):
    histogram = DurationHistogram()
    for latency_s in latencies_s:
        histogram.add(latency_s)
    return Counts(ledgers=ledgers, sink_queue=0, batches=batches, latency=histogram.counts, cpu_s=cpu_s, at_ns=int(at_s * 1e9))


def measured(first, last, usage):
    return _measured(first, last, cameras=2, startup_s=1.234, usage=usage)


def test_differences_of_two_counts_are_what_happened_between(idle):
    first = {"0": counts(10, {"a": Ledger(100, 90, 80, {"overload": 2})}, batches=10, cpu_s=5, latencies_s=[9.0] * 50)}
    last = {
        "0": counts(
            12,
            {"a": Ledger(160, 150, 140, {"overload": 5, "stale": 0}), "b": Ledger(25, 25, 20, {"stale": 1})},
            batches=30,
            cpu_s=5.4,
            latencies_s=[9.0] * 50 + [0.010] * 97 + [0.5] * 3,
        )
    }
    result = measured(first, last, idle)
    assert (result.received, result.published, result.dropped) == (85, 80, {"overload": 3, "stale": 1})
    assert not result.is_lossless
    assert (result.fps, result.seconds, result.mean_batch, result.cpu_ms_per_frame) == (40.0, 2.0, 4.0, 5.0)
    assert result.p50_ms == pytest.approx(10, rel=0.05)
    assert result.p99_ms == pytest.approx(500, rel=0.05)
    assert result.jain == pytest.approx(80**2 / (2 * (60**2 + 20**2)), abs=1e-4)
    assert (result.startup_s, result.workers, result.cameras) == (1.23, 1, 2)


def test_each_worker_has_its_own_time(idle):
    first = {"0": counts(10, {}), "1": counts(10.5, {})}
    last = {"0": counts(11, {"a": Ledger(10, 10, 10)}, latencies_s=[0.01]), "1": counts(12.5, {"b": Ledger(40, 40, 40)})}
    result = measured(first, last, idle)
    assert (result.fps, result.seconds, result.published) == (30.0, 2.0, 50)
    assert result.is_lossless


def test_nothing_published_is_no_division_by_zero(idle):
    result = measured({"0": counts(1, {})}, {"0": counts(2, {"a": Ledger()})}, idle)
    assert (result.fps, result.p50_ms, result.p99_ms, result.jain, result.mean_batch) == (0, None, None, 1.0, 0)


def test_jain_is_one_for_equal_shares_and_one_in_n_for_a_single_winner():
    assert _jain([7, 7, 7, 7]) == 1
    assert _jain([20, 0, 0, 0]) == 0.25
    assert _jain([]) == _jain([0, 0]) == 1


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=20))
def test_jain_lies_between_one_in_n_and_one(values):
    assert 1 / len(values) - 1e-9 <= _jain(values) <= 1 + 1e-9


@pytest.fixture
def load(small_clip):
    model = {"builtin": "efficientnet-lite0"}
    return Load(Setup(small_clip, model, "cpu", 1, "redis://127.0.0.1:1/0", {}).config(1, paced=True), gpus=[])


async def test_a_count_from_before_does_not_begin_a_measurement(load):
    (worker,) = load._workers
    load.worker_counted(worker.placement, counts(0, {}))
    waiting = asyncio.create_task(load._next_counts())
    await asyncio.sleep(0)
    assert not waiting.done()
    fresh = counts(1e9, {})
    load.worker_counted(worker.placement, fresh)
    assert list((await asyncio.wait_for(waiting, 5)).values()) == [fresh]


async def test_a_worker_that_dies_ends_the_measurement(load):
    (worker,) = load._workers
    measuring = asyncio.create_task(load.measure(60))
    await asyncio.sleep(0)
    load.worker_died(worker.placement, detail="exit code 1", retry_in_s=1.0)
    with pytest.raises(StreamdError, match=r"died: exit code 1"):
        await asyncio.wait_for(measuring, 5)


async def test_a_file_that_ends_before_it_was_measured_ends_the_measurement_and_says_what_to_do(load):
    measuring = asyncio.create_task(load.measure(60))
    await asyncio.sleep(0)
    load.worker_changed(Changed(state=CameraState(camera="bench-0", phase=Phase.ENDED, since_ms=1), event=None))
    with pytest.raises(StreamdError, match=r"^camera bench-0 has read its file to the end: measure fewer seconds, or a longer --clip$"):
        await asyncio.wait_for(measuring, 5)
