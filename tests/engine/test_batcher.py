"""When batches leave, and who is in them: never late, never too large, in order within a camera, in turns between cameras."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamd.engine.batcher import Batcher
from streamd.types import Batch, FrameRef, Sample

MAX_WAIT_NS = 10


def sample(camera: str, sequence: int, *, ready_ns: int = 0, expires_ns: int | None = None, rank: int = 0) -> Sample:
    ref = FrameRef(
        camera=camera,
        session="s",
        sequence=sequence,
        pts=None,
        time_base=Fraction(1, 1000),
        captured_ns=0,
        received_ns=0,
        decoded_ns=0,
    )
    return Sample(ref=ref, slot=0, ready_ns=ready_ns, expires_ns=expires_ns, rank=rank)


def batcher_of(*samples: Sample, max_batch: int = 4) -> Batcher:
    batcher = Batcher(max_batch=max_batch, max_wait_ns=MAX_WAIT_NS)
    for item in samples:
        batcher.put(item)
    return batcher


def names(samples) -> list[tuple[str, int]]:
    return [(item.ref.camera, item.ref.sequence) for item in samples]


def test_nothing_is_due_when_nothing_waits():
    batcher = batcher_of()
    assert batcher.due_ns() is None
    assert batcher.take(1 << 60, flush=True) is None
    assert (len(batcher), batcher.waiting("a"), list(batcher.expire(1 << 60)), batcher.evict(0)) == (0, 0, [], None)


def test_a_frame_of_a_file_waits_longer_than_a_live_one():
    batcher = Batcher(max_batch=4, max_wait_ns=10, file_wait_ns=50)
    batcher.put(sample("file", 0, ready_ns=100))
    assert batcher.due_ns() == 150
    batcher.put(sample("door", 0, ready_ns=120, expires_ns=1 << 40))
    assert batcher.due_ns() == 130


def test_a_partial_batch_leaves_when_its_oldest_sample_has_waited_and_not_before():
    batcher = batcher_of(sample("a", 0, ready_ns=105), sample("b", 0, ready_ns=100), sample("b", 1, ready_ns=101))
    assert batcher.due_ns() == 110
    assert batcher.take(109) is None
    batch = batcher.take(110)
    assert names(batch.samples) == [("a", 0), ("b", 0), ("b", 1)]
    assert batch.formed_ns == 110
    assert len(batcher) == 0


def test_a_full_batch_leaves_at_once():
    batcher = batcher_of(*(sample("a", n, ready_ns=100) for n in range(4)))
    assert batcher.due_ns() == 0
    assert names(batcher.take(251).samples) == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]


def test_a_flush_takes_what_is_not_due_and_tells_the_true_time():
    batcher = batcher_of(*(sample("a", n, ready_ns=100) for n in range(5)))
    first, second = batcher.take(100, flush=True), batcher.take(101, flush=True)
    assert (names(first.samples), first.formed_ns) == ([("a", 0), ("a", 1), ("a", 2), ("a", 3)], 100)
    assert (names(second.samples), second.formed_ns) == ([("a", 4)], 101)


def test_cameras_take_turns_across_batches():
    batcher = batcher_of(*(sample("flood", n) for n in range(6)), sample("b", 0), sample("b", 1), sample("c", 0))
    batches = [names(batcher.take(MAX_WAIT_NS).samples) for _ in range(3)]
    assert batches == [
        [("flood", 0), ("b", 0), ("c", 0), ("flood", 1)],
        [("b", 1), ("flood", 2), ("flood", 3), ("flood", 4)],
        [("flood", 5)],
    ]


def test_expired_samples_leave_wherever_they_wait_and_the_rest_keeps_its_order():
    batcher = batcher_of(
        sample("a", 0, expires_ns=50),
        sample("a", 2, expires_ns=52),
        sample("a", 1, expires_ns=51),
        sample("b", 0, expires_ns=51),
        sample("file", 0),
    )
    assert names(batcher.expire(49)) == []
    assert names(batcher.expire(51)) == [("a", 0), ("a", 1), ("b", 0)]
    assert (len(batcher), batcher.waiting("a"), batcher.waiting("b")) == (2, 1, 0)
    assert names(batcher.take(MAX_WAIT_NS).samples) == [("a", 2), ("file", 0)]


def test_the_oldest_sample_of_the_camera_with_most_of_them_makes_way():
    live = {"expires_ns": 1000}
    batcher = batcher_of(
        sample("a", 0, **live), sample("b", 0, **live), sample("b", 1, **live), *(sample("file", n) for n in range(3)), max_batch=99
    )
    evicted = [batcher.evict(0) for _ in range(4)]
    assert names(evicted[:1]) == [("b", 0)]
    assert sorted(names(evicted[1:3])) == [("a", 0), ("b", 1)]
    assert evicted[3] is None
    assert (len(batcher), batcher.waiting("file")) == (3, 3)


class AnyOrderOfCalls(RuleBasedStateMachine):
    """What goes in comes out once, in order, in time, and in batches that are not too large, whatever is called when."""

    @initialize(max_batch=st.integers(1, 5))
    def begin(self, max_batch: int) -> None:
        self.batcher = batcher_of(max_batch=max_batch)
        self.max_batch = max_batch
        self.now_ns = 1000
        self.count = 0
        self.inside: list[Sample] = []
        self.last_taken = dict.fromkeys("abc", -1)

    def due_ns(self) -> int | None:
        if len(self.inside) >= self.batcher.limit:
            return 0
        return min(item.ready_ns for item in self.inside) + MAX_WAIT_NS if self.inside else None

    @rule(ns=st.integers(1, 12))
    def time_passes(self, ns: int) -> None:
        self.now_ns += ns

    @rule(camera=st.sampled_from("abc"), age_ns=st.one_of(st.none(), st.integers(0, 60)))
    def put(self, camera: str, age_ns: int | None) -> None:
        expires_ns = None if age_ns is None else self.now_ns + age_ns
        item = sample(camera, self.count, ready_ns=self.now_ns, expires_ns=expires_ns, rank={"a": 0, "b": 1, "c": 1}[camera])
        self.count += 1
        self.batcher.put(item)
        self.inside.append(item)

    @rule(flush=st.booleans())
    def take(self, flush: bool) -> None:
        due_ns = self.due_ns()
        batch = self.batcher.take(self.now_ns, flush=flush)
        assert (batch is not None) == (due_ns is not None and (flush or due_ns <= self.now_ns))
        if batch is not None:
            assert len(batch.samples) == min(self.batcher.limit, len(self.inside))
            assert batch.formed_ns == self.now_ns
            for item in batch.samples:
                assert item.ref.sequence > self.last_taken[item.ref.camera]
                self.last_taken[item.ref.camera] = item.ref.sequence
                self.inside.remove(item)
            assert min(item.rank for item in batch.samples) >= max((item.rank for item in self.inside), default=0)

    @rule()
    def expire(self) -> None:
        past = [item for item in self.inside if item.expires_ns is not None and item.expires_ns <= self.now_ns]
        gone = self.batcher.expire(self.now_ns)
        assert {*names(past)} <= {*names(gone)}
        assert all(item.expires_ns is not None for item in gone)
        self.inside = [item for item in self.inside if item not in gone]

    @rule(rank=st.integers(0, 2))
    def evict(self, rank: int) -> None:
        evicted = self.batcher.evict(rank)
        if evicted is not None:
            assert evicted.expires_ns is not None
            assert evicted.rank <= rank
            self.inside.remove(evicted)

    @rule()
    def shed(self) -> None:
        before = {item.ref.camera for item in self.inside}
        for item in self.batcher.shed(self.now_ns):
            assert item.expires_ns is not None
            self.inside.remove(item)
        assert {item.ref.camera for item in self.inside} == before

    @rule(ns=st.integers(1, 30), size=st.integers(1, 5))
    def a_batch_was_slow(self, ns: int, size: int) -> None:
        self.batcher.took(Batch([sample("a", 0)] * size, self.now_ns), self.now_ns + ns)

    @invariant()
    def what_it_says_of_itself_is_true(self) -> None:
        assert self.batcher.due_ns() == self.due_ns()
        assert len(self.batcher) == len(self.inside)
        waiting = Counter(item.ref.camera for item in self.inside)
        assert [self.batcher.waiting(camera) for camera in "abc"] == [waiting[camera] for camera in "abc"]


TestAnyOrderOfCalls = AnyOrderOfCalls.TestCase
TestAnyOrderOfCalls.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def jain(shares: list[int]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one has all (R. Jain et al., DEC-TR-301, 1984)."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


@pytest.mark.parametrize("flood", [20, 200])
def test_a_camera_that_floods_gets_no_more_than_the_others(flood):
    demands = {"flood": flood, "a": 3, "b": 3, "c": 3}
    batcher, served, sequence = batcher_of(max_batch=8), Counter(), 0
    for now_ns in range(100):
        for camera, count in demands.items():
            for _ in range(count):
                batcher.put(sample(camera, sequence, ready_ns=now_ns))
                sequence += 1
        served.update(item.ref.camera for item in batcher.take(now_ns).samples)
    assert jain([served[camera] for camera in demands]) > 0.999
    assert sum(served.values()) == 800


def test_cameras_below_their_share_get_all_they_ask_for_and_the_flood_gets_the_rest():
    batcher, served, sequence = batcher_of(max_batch=8), Counter(), 0
    for now_ns in range(100):
        for camera, count in {"flood": 50, "a": 1, "b": 1, "c": 1}.items():
            for _ in range(count):
                batcher.put(sample(camera, sequence, ready_ns=now_ns))
                sequence += 1
        served.update(item.ref.camera for item in batcher.take(now_ns).samples)
    assert served == {"a": 100, "b": 100, "c": 100, "flood": 500}


def test_eviction_takes_from_the_flood_until_it_holds_no_more_than_the_others():
    live = {"expires_ns": 1 << 60}
    flood, slow = [sample("flood", n, **live) for n in range(20)], [sample(camera, n, **live) for n in range(3) for camera in "ab"]
    batcher = batcher_of(*flood, *slow, max_batch=99)
    evicted = [batcher.evict(0) for _ in range(17)]
    assert names(evicted) == [("flood", n) for n in range(17)]
    assert [batcher.waiting(camera) for camera in ("flood", "a", "b")] == [3, 3, 3]


def test_higher_ranks_go_first_and_cameras_of_one_rank_take_turns():
    batcher = batcher_of(
        sample("yard", 0), sample("till", 0, rank=2), sample("door", 0, rank=1), sample("hall", 0, rank=1), sample("till", 1, rank=2)
    )
    assert names(batcher.take(MAX_WAIT_NS).samples) == [("till", 0), ("till", 1), ("door", 0), ("hall", 0)]
    assert names(batcher.take(MAX_WAIT_NS).samples) == [("yard", 0)]


def test_a_camera_that_had_nothing_for_a_while_keeps_its_place_in_the_line():
    batcher = batcher_of(sample("a", 0), sample("b", 0), sample("c", 0), max_batch=2)
    assert names(batcher.take(0).samples) == [("a", 0), ("b", 0)]
    batcher.put(sample("b", 1))
    batcher.put(sample("a", 1))
    assert names(batcher.take(0).samples) == [("c", 0), ("a", 1)]


def test_a_sample_makes_way_for_one_of_its_rank_or_a_higher_one_only():
    live = {"expires_ns": 1000}
    batcher = batcher_of(sample("yard", 0, rank=1, **live), sample("till", 0, rank=2, **live), sample("till", 1, rank=2, **live))
    assert batcher.evict(0) is None
    assert names([batcher.evict(2), batcher.evict(2)]) == [("yard", 0), ("till", 0)]
    assert batcher.evict(1) is None


def crowd(*counts: tuple[str, int, int]) -> Batcher:
    """Live cameras (name, rank, samples) whose frames may be 400 ns old, and batches of 4."""
    return batcher_of(*(sample(camera, n, rank=rank, expires_ns=400) for camera, rank, number in counts for n in range(number)))


def test_a_crowd_loses_nothing_while_it_is_young_or_short():
    batcher = crowd(("a", 0, 5), ("b", 0, 5))
    assert [list(batcher.shed(now_ns)) for now_ns in (0, 100, 101, 150)] == [[]] * 4, "late from 100 on, for less than 50"
    batcher.take(150)
    batcher.take(150)
    assert list(batcher.shed(200)) == [], "the rest fits into one batch: the crowd is over"
    for number in range(5, 9):
        batcher.put(sample("a", number, expires_ns=400))
    assert list(batcher.shed(201)) == [], "and another one begins"


def test_once_samples_make_way_they_do_until_one_batch_holds_them_all():
    batcher = crowd(("a", 0, 5))
    batcher.shed(201)
    assert names(batcher.shed(251)) == [("a", 0)]
    for number in range(5, 8):
        batcher.put(replace(sample("a", number, expires_ns=651), ref=replace(sample("a", number).ref, received_ns=251)))
    assert names(batcher.shed(252)) == [("a", 1), ("a", 2), ("a", 3)], "young ones too"
    assert list(batcher.shed(253)) == []
    batcher.put(replace(sample("a", 8, expires_ns=651), ref=replace(sample("a", 8).ref, received_ns=251)))
    batcher.take(254)
    assert list(batcher.shed(255)) == []


def test_in_a_lasting_crowd_the_oldest_of_those_with_most_make_way_until_the_rest_fits():
    batcher = crowd(("a", 0, 5), ("b", 0, 2), ("c", 0, 1))
    batcher.shed(201)
    assert names(batcher.shed(251)) == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]
    assert sorted(names(batcher.take(251).samples)) == [("a", 4), ("b", 0), ("b", 1), ("c", 0)]


def test_each_camera_keeps_its_newest_sample_in_a_crowd():
    batcher = crowd(*((camera, 0, 2) for camera in "abcdef"))
    batcher.shed(201)
    assert sorted(names(batcher.shed(251))) == [(camera, 0) for camera in "abcdef"]
    assert names(batcher.take(251).samples) == [(camera, 1) for camera in "abcd"]


def test_in_a_crowd_lower_ranks_make_way_and_higher_ones_lose_nothing():
    batcher = crowd(("till", 1, 3), ("yard", 0, 3), ("hall", 0, 1))
    batcher.shed(201)
    assert names(batcher.shed(251)) == [("yard", 0), ("yard", 1)]
    assert [name for name, _ in names(batcher.take(251).samples)].count("till") == 3


def test_files_that_always_have_something_waiting_are_no_crowd():
    batcher = crowd(("door", 1, 1))
    for number in range(20):
        batcher.put(sample("file", number))
    for now_ns in (201, 260, 399):
        assert list(batcher.shed(now_ns)) == []


def test_samples_of_files_never_make_way():
    batcher = batcher_of(*(sample("file", n) for n in range(9)), sample("live", 0, rank=3, expires_ns=400))
    batcher.shed(300)
    assert list(batcher.shed(1000)) == []


def test_a_slow_model_gets_batches_that_take_a_third_of_max_age_at_most():
    batcher = batcher_of(*(sample("a", n, expires_ns=600) for n in range(30)), max_batch=32)
    assert batcher.limit == 32
    batcher.took(Batch([sample("a", 0)] * 4, 0), 100)
    assert batcher.limit == 600 // 3 // 25
    assert len(batcher.take(0).samples) == 8


def test_without_live_cameras_batches_are_as_large_as_they_may_be():
    batcher = batcher_of(*(sample("file", n) for n in range(30)), max_batch=32)
    batcher.took(Batch([sample("file", 0)], 0), 10**9)
    assert batcher.limit == 32


def test_what_would_be_too_old_with_its_scores_is_not_classified():
    batcher = batcher_of(sample("a", 0, expires_ns=600), sample("b", 0, expires_ns=600))
    batcher.took(Batch([sample("a", 0)], 0), 50)
    assert list(batcher.expire(499)) == []
    assert names(batcher.expire(500)) == [("a", 0), ("b", 0)]


def test_a_model_slower_than_max_age_still_gets_young_frames():
    batcher = batcher_of(sample("a", 0, expires_ns=600))
    batcher.took(Batch([sample("a", 0)], 0), 5000)
    assert batcher.limit == 1
    assert list(batcher.expire(299)) == []
    assert names(batcher.expire(300)) == [("a", 0)]
