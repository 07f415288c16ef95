"""A strand stays on its thread and hears every wake; one that crashes takes nothing along."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs
from support.wait import wait_until

from streamd.camera.pool import DecodePool
from streamd.camera.turns import Urgency

PATIENCE_S = 10.0


class Lines:
    """Work that empties a queue, some of it a step, and notices when two threads run it at once."""

    def __init__(self, *, per_step: int = 1) -> None:
        self.line: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.done: list[int] = []
        self.steps = 0
        self.overlaps = 0
        self.crashes: list[BaseException] = []
        self._busy = threading.Lock()
        self._per_step = per_step

    def step(self) -> bool:
        if not self._busy.acquire(blocking=False):
            self.overlaps += 1
            return False
        try:
            self.steps += 1
            for _ in range(self._per_step):
                try:
                    self.done.append(self.line.get_nowait())
                except queue.Empty:
                    return False
            return True
        finally:
            self._busy.release()

    def crashed(self, error: BaseException) -> None:
        self.crashes.append(error)


class Acts:
    """Work that does as it is told."""

    def __init__(self, step: Callable[[], bool], *, on_crash: Callable[[], None] = lambda: None) -> None:
        self.step = step
        self.crashes: list[BaseException] = []
        self._on_crash = on_crash

    def crashed(self, error: BaseException) -> None:
        self.crashes.append(error)
        self._on_crash()


@pytest.fixture
def pool() -> Iterator[DecodePool]:
    pool = DecodePool(4)
    pool.start()
    yield pool
    assert pool.stop(timeout_s=PATIENCE_S)


@pytest.fixture
def one_thread() -> Iterator[DecodePool]:
    pool = DecodePool(1)
    pool.start()
    yield pool
    assert pool.stop(timeout_s=PATIENCE_S)


def test_no_wake_is_lost_and_no_strand_runs_twice_at_once_under_stress(pool):
    works = [Lines() for _ in range(6)]
    strands = [pool.strand(work) for work in works]
    count, begin = 300, threading.Barrier(3)

    def feed(part: int) -> None:
        begin.wait()
        for number in range(count):
            for work, strand in zip(works, strands, strict=True):
                work.line.put(3 * number + part)
                strand.wake()

    feeders = [threading.Thread(target=feed, args=(part,)) for part in range(3)]
    for feeder in feeders:
        feeder.start()
    for feeder in feeders:
        feeder.join()
    wait_until(lambda: all(len(work.done) == 3 * count for work in works), what="all work done")
    assert all(sorted(work.done) == list(range(3 * count)) for work in works)
    assert [work.overlaps for work in works] == [0] * 6


def test_a_single_wake_as_the_queue_runs_empty_is_enough_every_time(pool):
    line: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[int] = queue.SimpleQueue()

    def step() -> bool:
        while not line.empty():
            done.put(line.get())
        return False

    strand = pool.strand(Acts(step))
    for number in range(2000):
        line.put(number)
        strand.wake()
        assert done.get(timeout=PATIENCE_S) == number  # and the next wake meets the end of this step


def test_a_wake_in_the_middle_of_a_step_leads_to_another_one(one_thread):
    inside, go_on, again, steps = threading.Event(), threading.Event(), threading.Event(), []

    def step() -> bool:
        steps.append(threading.get_ident())
        if len(steps) > 1:
            again.set()
            return False
        inside.set()
        assert go_on.wait(PATIENCE_S)
        return False

    strand = one_thread.strand(Acts(step))
    strand.wake()
    assert inside.wait(PATIENCE_S)
    for _ in range(5):
        strand.wake()
    go_on.set()
    assert again.wait(PATIENCE_S)
    assert one_thread.stop(timeout_s=PATIENCE_S)
    assert len(steps) == 2


def test_wakes_before_the_pool_starts_are_one_step_and_not_forgotten():
    pool, work = DecodePool(2), Lines()
    strand = pool.strand(work)
    for _ in range(5):
        strand.wake()
    pool.start()
    wait_until(lambda: work.steps, what="a step")
    assert pool.stop(timeout_s=PATIENCE_S)
    assert work.steps == 1


def test_a_step_with_more_to_do_is_called_again_without_a_wake(pool):
    work = Lines(per_step=4)
    for number in range(101):
        work.line.put(number)
    pool.strand(work).wake()
    wait_until(lambda: len(work.done) == 101, what="all work done")
    assert work.done == list(range(101))


def test_cameras_take_turns_on_one_thread(one_thread):
    begin, turns = threading.Event(), []

    def work(name: str) -> Acts:
        def step() -> bool:
            assert begin.wait(PATIENCE_S)
            turns.append(name)
            return turns.count(name) < 50

        return Acts(step)

    strands = [one_thread.strand(work(name)) for name in "abc"]
    for strand in strands:
        strand.wake()
    begin.set()
    wait_until(lambda: len(turns) == 150, what="all turns")
    assert turns == list("abc" * 50)


def test_a_crash_is_told_once_and_the_others_go_on(one_thread):
    crashing = Acts(lambda: 1 / 0 > 0)
    broken, work = one_thread.strand(crashing), Lines()
    broken.wake()
    wait_until(lambda: crashing.crashes, what="the crash")
    for number in range(20):
        broken.wake()
        work.line.put(number)
    one_thread.strand(work).wake()
    wait_until(lambda: len(work.done) == 20, what="the other camera's work")
    assert [type(error) for error in crashing.crashes] == [ZeroDivisionError]


def test_a_step_that_is_woken_and_then_crashes_is_not_called_again(one_thread):
    steps = []

    def step() -> bool:
        steps.append("step")
        strand.wake()
        raise RuntimeError

    strand, passed = one_thread.strand(Acts(step)), threading.Event()
    strand.wake()
    wait_until(lambda: strand.is_closed, what="the crash")
    one_thread.strand(Acts(lambda: passed.set() is not None)).wake()
    assert passed.wait(PATIENCE_S)
    assert steps == ["step"]


def test_a_strand_that_was_closed_while_it_waited_is_not_called(one_thread):
    inside, go_on, passed, closed = threading.Event(), threading.Event(), threading.Event(), Lines()

    def step() -> bool:
        inside.set()
        return not go_on.wait(PATIENCE_S)

    one_thread.strand(Acts(step)).wake()
    assert inside.wait(PATIENCE_S)
    waiting = one_thread.strand(closed)
    waiting.wake()
    waiting.close()
    waiting.wake()
    one_thread.strand(Acts(lambda: passed.set() is not None)).wake()
    go_on.set()
    assert passed.wait(PATIENCE_S)
    assert closed.steps == 0


def test_a_strand_stays_on_its_thread_and_threads_have_equally_many():
    pool, ran = DecodePool(3), [[] for _ in range(6)]
    pool.start()
    strands = [pool.strand(Acts(lambda seen=seen: bool(seen.append(threading.get_ident())))) for seen in ran]
    for turn in range(1, 21):
        for strand in strands:
            strand.wake()
        wait_until(lambda turn=turn: all(len(seen) >= turn for seen in ran), what="a step of each")
    assert pool.stop(timeout_s=PATIENCE_S)
    assert [len(set(seen)) for seen in ran] == [1] * 6
    assert sorted(Counter(seen[0] for seen in ran).values()) == [2, 2, 2]


def test_the_place_of_a_closed_strand_is_taken_by_the_next_one():
    pool, ran = DecodePool(2), []
    strands = [pool.strand(Acts(lambda: bool(ran.append(threading.get_ident())))) for _ in range(4)]
    strands[1].close()
    strands[3].close()
    strands += [pool.strand(Acts(lambda: bool(ran.append(threading.get_ident())))) for _ in range(2)]
    pool.start()
    for strand in strands:
        strand.wake()
    wait_until(lambda: len(ran) == 4, what="all strands")
    assert pool.stop(timeout_s=PATIENCE_S)
    assert sorted(Counter(ran).values()) == [2, 2]


def test_a_crash_that_cannot_even_be_told_leaves_the_thread_alive(one_thread):
    def fail() -> None:
        raise OSError("the decoder cannot be closed")

    crashing, work = Acts(lambda: 1 / 0 > 0, on_crash=fail), Lines()
    with capture_logs() as logs:
        one_thread.strand(crashing).wake()
        wait_until(lambda: logs, what="a log line")
    assert [(entry["event"], entry["crash"]) for entry in logs] == [("crash_unreported", "ZeroDivisionError('division by zero')")]
    work.line.put(1)
    one_thread.strand(work).wake()
    wait_until(lambda: work.done, what="the other camera's work")


def test_each_thread_is_prepared_before_it_works():
    prepared, ran = [], []
    pool = DecodePool(3, prepare=lambda: prepared.append(threading.current_thread()))
    pool.start()
    for _ in range(20):
        pool.strand(Acts(lambda: bool(ran.append(threading.current_thread() in prepared)))).wake()
    wait_until(lambda: len(ran) == 20, what="all strands")
    assert pool.stop(timeout_s=PATIENCE_S)
    assert all(ran)
    assert len(set(prepared)) == 3


def test_stop_does_not_wait_for_calls_that_never_return():
    pool, go_on, entered = DecodePool(3), threading.Event(), threading.Semaphore(0)

    def step() -> bool:
        entered.release()
        go_on.wait(PATIENCE_S)
        return False

    for _ in range(3):
        pool.strand(Acts(step)).wake()
    pool.start()
    assert all(entered.acquire(timeout=PATIENCE_S) for _ in range(3))
    began_s = time.monotonic()
    assert not pool.stop(timeout_s=0.2)
    assert 0.2 <= time.monotonic() - began_s < 0.5  # for all threads together, and not for each
    go_on.set()
    assert pool.stop(timeout_s=PATIENCE_S)


def turns_taken(pool: DecodePool, urgencies: dict[str, Urgency], *, hasten: str | None = None) -> list[str]:
    """Each strand is woken in this order while the pool's one thread is busy; who then comes first?"""
    inside, go_on, turns = threading.Event(), threading.Event(), []

    def hold() -> bool:
        inside.set()
        return not go_on.wait(PATIENCE_S)

    pool.strand(Acts(hold)).wake()
    assert inside.wait(PATIENCE_S)
    strands = {
        name: pool.strand(Acts(lambda name=name: bool(turns.append(name))), urgency=lambda urgency=urgency: urgency)
        for name, urgency in urgencies.items()
    }
    for strand in strands.values():
        strand.wake()
    if hasten is not None:
        strands[hasten].hasten()
    go_on.set()
    wait_until(lambda: len(turns) >= len(urgencies), what="all turns")
    return turns


def test_the_most_urgent_camera_goes_first(one_thread):
    urgencies = {"low": (1, 0.9), "lost": (2, 0.5), "high": (3, 0.0), "lucky": (2, 0.1)}
    assert turns_taken(one_thread, urgencies) == ["high", "lost", "lucky", "low"]


def test_a_camera_that_has_something_to_end_goes_before_all_others(one_thread):
    assert turns_taken(one_thread, {"high": (3, 0.0), "low": (1, 0.0)}, hasten="low") == ["low", "high"]


def test_cameras_of_one_rank_are_spread_over_the_threads():
    pool = DecodePool(2)
    for rank in (3, 1, 1, 3, 1, 3, 3, 1):
        pool.strand(Lines(), urgency=lambda rank=rank: (rank, 0.0))
    assert [sorted(strand.rank for strand in decoding.strands) for decoding in pool._threads] == [[1, 1, 3, 3]] * 2
