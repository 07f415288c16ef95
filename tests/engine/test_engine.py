"""The engine with a model that says which value it saw: whose frame a score is about is proven, not assumed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from support.wait import wait_until
from torch import Tensor, nn
from torch.nn import functional

from streamd.config.types import EngineConfig
from streamd.engine import Engine, Intake
from streamd.engine import intake as intake_module
from streamd.engine.intake import Gathering
from streamd.models import LoadedModel
from streamd.preprocess.spec import InputSpec
from streamd.types import DropReason, Frame, FrameRef, Matrix, Scores

PATIENCE_S = 10.0
CLASSES = 256
SPEC = InputSpec(resize=4, crop=(4, 4), interpolation="bilinear", mean=(0.0, 0.0, 0.0), std=(1 / 255, 1 / 255, 1 / 255))
"""Levels stay levels."""
MAKES_WAY = {"max_age_s": 3600.0}
WAITS = {"max_age_s": None}


class SaysWhatItSees(nn.Module):
    """Class n for a picture whose pixels are n. Holds a batch at its gate while that is closed; the warm-up passes."""

    def __init__(self, *, raises_at: int | None = None) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Semaphore(0)
        self.seen: list[list[int]] = []
        self.raises_at = raises_at
        self.is_warm = False

    def forward(self, pixels: Tensor) -> Tensor:
        values = pixels.mean(dim=(1, 2, 3)).round().long()
        if self.is_warm:
            self.seen.append(values.tolist())
            self.inside.release()
            assert self.gate.wait(PATIENCE_S)
            if self.raises_at is not None and self.raises_at in values:
                raise RuntimeError("device-side assert")
        self.is_warm = True
        return functional.one_hot(values, CLASSES) * 20.0


class Rig:
    """An engine and all that came out of it."""

    def __init__(self, *modules: SaysWhatItSees, **config: Any) -> None:
        self.modules = modules or (SaysWhatItSees(),)
        models = {
            f"m{n}": LoadedModel(name=f"m{n}", module=module, labels=tuple(map(str, range(CLASSES))), input=SPEC)
            for n, module in enumerate(self.modules)
        }
        self.scores: list[Scores] = []
        self.drops: list[tuple[str, int, DropReason]] = []
        self.failed = threading.Event()
        self.engine = Engine(
            models,
            top_k=dict.fromkeys(models, 2),
            config=EngineConfig(**({"max_batch": 4, "max_wait": 0.001, "slots": 8} | config)),
            device=torch.device("cpu"),
            on_scores=self.scores.extend,
            on_drop=self._dropped,
        )
        self.engine.start(on_failure=self.failed.set)

    def _dropped(self, refs: Sequence[FrameRef], reason: DropReason) -> None:
        self.drops.extend((ref.camera, ref.sequence, reason) for ref in refs)

    def intake(self, camera: str, *, max_age_s: float | None, model: str = "m0") -> Intake:
        return self.engine.intake(camera, model, max_age_s=max_age_s)

    @property
    def pool(self):
        return self.engine.lanes["m0"].pool

    def scored(self, count: int) -> list[tuple[str, int]]:
        """Camera and sequence of each score, once there are `count`."""
        wait_until(lambda: len(self.scores) >= count or self.failed.is_set(), what=f"{count} scores")
        return [(scores.ref.camera, scores.ref.sequence) for scores in self.scores]

    def hold(self) -> None:
        """Close the gate, and have a batch of one frame of the camera `plug` wait there."""
        self.modules[0].gate.clear()
        send(self.intake("plug", **MAKES_WAY), 0, value=255)
        assert self.modules[0].inside.acquire(timeout=PATIENCE_S)

    def release(self) -> None:
        for module in self.modules:
            module.gate.set()


@pytest.fixture
def rig() -> Iterator[Callable[..., Rig]]:
    """Makes rigs. When the test ends each is stopped, and all its slots must be back unless its model failed."""
    rigs: list[Rig] = []

    def make(*modules: SaysWhatItSees, **config: Any) -> Rig:
        rigs.append(Rig(*modules, **config))
        return rigs[-1]

    yield make
    for each in rigs:
        each.release()
        each.engine.stop()
        if each.engine.failure is None:
            assert [lane.pool.free for lane in each.engine.lanes.values()] == [lane.pool.count for lane in each.engine.lanes.values()]


def ref_of(camera: str, sequence: int, *, received_ns: int | None = None) -> FrameRef:
    return FrameRef(
        camera=camera,
        session="s",
        sequence=sequence,
        pts=None,
        time_base=Fraction(1, 1000),
        captured_ns=0,
        received_ns=time.monotonic_ns() if received_ns is None else received_ns,
        decoded_ns=0,
    )


def send(intake: Intake, sequence: int, *, value: int, received_ns: int | None = None) -> bool:
    """A frame all of whose pixels are `value`; False when it found no slot."""
    slot = intake.take_slot()
    if slot is None:
        return False
    intake.lane.pool.views[slot].fill_(value)
    intake.submit([ref_of(intake.camera, sequence, received_ns=received_ns)], [slot])
    return True


def test_every_frame_of_many_files_is_scored_once_in_order_and_as_itself(rig):
    made, count = rig(max_batch=4, slots=16), 120

    def play(number: int) -> None:
        intake, room = made.intake(f"file{number}", **WAITS), threading.Event()
        for sequence in range(count):
            room.clear()
            while not intake.has_room(room.set):
                assert room.wait(PATIENCE_S)
                room.clear()
            assert send(intake, sequence, value=(50 * number + sequence) % CLASSES)

    players = [threading.Thread(target=play, args=(number,)) for number in range(5)]
    for player in players:
        player.start()
    for player in players:
        player.join()
    scored = made.scored(5 * count)
    for number in range(5):
        assert [sequence for camera, sequence in scored if camera == f"file{number}"] == list(range(count))
    assert all(
        scores.classes[0] == (50 * int(scores.ref.camera[-1]) + scores.ref.sequence) % CLASSES and scores.probabilities[0] > 0.99
        for scores in made.scores
    )
    assert all(1 <= scores.batch_size <= 4 for scores in made.scores)
    assert made.drops == []
    assert made.engine.batches == len(made.modules[0].seen)


def test_live_cameras_faster_than_the_model_account_for_every_frame(rig):
    made, count = rig(max_batch=4, slots=8), 300

    def play(number: int) -> None:
        intake = made.intake(f"cam{number}", **MAKES_WAY)
        sent = sum(send(intake, sequence, value=number) for sequence in range(count))
        refused[number] = count - sent

    refused: dict[int, int] = {}
    players = [threading.Thread(target=play, args=(number,)) for number in range(4)]
    for player in players:
        player.start()
    for player in players:
        player.join()
    made.engine.stop()
    out = Counter([(scores.ref.camera, scores.ref.sequence) for scores in made.scores] + [drop[:2] for drop in made.drops])
    assert set(out.values()) == {1}
    assert len(out) + sum(refused.values()) == 4 * count
    assert {reason for *_, reason in made.drops} <= {DropReason.OVERLOAD}
    for number in range(4):
        order = [scores.ref.sequence for scores in made.scores if scores.ref.camera == f"cam{number}"]
        assert order == sorted(order)
        assert all(scores.classes[0] == number for scores in made.scores if scores.ref.camera == f"cam{number}")


def test_a_partial_batch_leaves_after_max_wait(rig):
    made = rig(max_batch=4, max_wait=0.05)
    intake = made.intake("door", **MAKES_WAY)
    assert all(send(intake, sequence, value=sequence) for sequence in range(3))
    assert made.scored(3) == [("door", 0), ("door", 1), ("door", 2)]
    first = made.scores[0]
    assert first.batched_ns - first.ready_ns >= 50_000_000
    assert first.ready_ns <= first.batched_ns <= first.inferred_ns


def test_a_full_batch_does_not_wait(rig):
    made = rig(max_batch=4, max_wait=3600)
    intake = made.intake("door", **MAKES_WAY)
    assert all(send(intake, sequence, value=sequence) for sequence in range(4))
    assert made.scored(4) == [("door", sequence) for sequence in range(4)]
    assert {scores.batch_size for scores in made.scores} == {4}


def test_a_live_frame_that_grew_too_old_behind_a_slow_model_is_dropped_unseen(rig):
    made = rig()
    made.hold()
    old, fresh = made.intake("old", max_age_s=0.05), made.intake("fresh", **MAKES_WAY)
    assert send(old, 0, value=1)
    expires_s = time.monotonic() + 0.05
    assert send(fresh, 0, value=2)
    assert send(old, 1, value=3)
    wait_until(lambda: time.monotonic() > expires_s + 0.05, what="the age limit")
    made.release()
    assert made.scored(2) == [("plug", 0), ("fresh", 0)]
    assert made.drops == [("old", 0, DropReason.STALE), ("old", 1, DropReason.STALE)]
    assert made.modules[0].seen == [[255], [2]]


def test_age_counts_from_the_arrival_of_the_packet(rig):
    made = rig(max_wait=3600)
    intake = made.intake("door", max_age_s=1.0)
    assert send(intake, 0, value=1, received_ns=time.monotonic_ns() - 1_000_000_001)
    wait_until(lambda: made.drops, what="the drop")
    assert made.drops == [("door", 0, DropReason.STALE)]


def test_frames_of_a_file_never_grow_too_old(rig):
    made = rig()
    assert send(made.intake("file", **WAITS), 0, value=7, received_ns=0)
    assert made.scored(1) == [("file", 0)]


def test_a_live_camera_without_a_slot_takes_that_of_the_oldest_frame_of_the_camera_with_most(rig):
    made = rig(max_batch=2, slots=5)
    made.hold()
    busy, calm = made.intake("busy", **MAKES_WAY), made.intake("calm", **MAKES_WAY)
    assert send(calm, 0, value=1)
    assert all(send(busy, sequence, value=10 + sequence) for sequence in range(3))
    assert made.pool.free == 0
    assert send(made.intake("new", **MAKES_WAY), 0, value=2)
    assert made.drops == [("busy", 0, DropReason.OVERLOAD)]
    made.release()
    assert sorted(made.scored(5)) == [("busy", 1), ("busy", 2), ("calm", 0), ("new", 0), ("plug", 0)]
    assert {scores.ref.camera: scores.classes[0] for scores in made.scores}["new"] == 2


def test_a_camera_takes_no_slot_from_one_of_higher_rank(rig):
    made = rig(max_batch=1, slots=3)
    made.hold()
    till, yard = made.engine.intake("till", "m0", max_age_s=3600.0, rank=2), made.engine.intake("yard", "m0", max_age_s=3600.0, rank=1)
    assert send(till, 0, value=1)
    assert send(yard, 0, value=2)
    assert send(till, 1, value=3)
    assert made.drops == [("yard", 0, DropReason.OVERLOAD)]
    assert not send(yard, 1, value=4)
    made.release()
    assert made.scored(3) == [("plug", 0), ("till", 0), ("till", 1)]


def test_in_a_lasting_crowd_older_frames_make_way_for_newer_ones(rig):
    made = rig(max_batch=1, slots=8)
    door = made.intake("door", max_age_s=80.0)
    made.hold()
    arrived_ns = time.monotonic_ns() - 60 * 10**9
    assert all(send(door, sequence, value=sequence, received_ns=arrived_ns) for sequence in range(3))
    with made.engine._lock:
        made.engine.lanes["m0"].batcher.shed(arrived_ns + 45 * 10**9)
    made.release()
    assert made.scored(2) == [("plug", 0), ("door", 2)]
    assert made.drops == [("door", 0, DropReason.OVERLOAD), ("door", 1, DropReason.OVERLOAD)]


def test_a_live_camera_gets_no_slot_when_only_frames_of_files_wait(rig):
    made = rig(max_batch=2, slots=4)
    made.hold()
    file = made.intake("file", **WAITS)
    assert all(send(file, sequence, value=sequence) for sequence in range(3))
    assert not send(made.intake("live", **MAKES_WAY), 0, value=9)
    made.release()
    assert made.scored(4) == [("plug", 0), ("file", 0), ("file", 1), ("file", 2)]
    assert made.drops == []


class RecordedEvent:
    """In place of a torch.cuda.Event: notes that it was recorded and waited for."""

    def __init__(self) -> None:
        self.was_awaited = False

    def record(self) -> None:
        self.was_awaited = False

    def synchronize(self) -> None:
        self.was_awaited = True


def test_a_slot_is_not_given_away_while_pixels_are_on_their_way_into_it(rig):
    made = rig(max_batch=1, slots=3)
    made.pool.filled = made.pool._events = filled = [RecordedEvent() for _ in range(3)]
    made.hold()
    assert send(made.intake("a", **MAKES_WAY), 0, value=1)
    assert send(made.intake("file", **WAITS), 0, value=1)
    slot = made.intake("b", **MAKES_WAY).take_slot()
    assert filled[slot].was_awaited
    made.pool.mark_filled([slot])
    made.intake("b", max_age_s=0.0).submit([ref_of("b", 0)], [slot])
    made.release()
    wait_until(lambda: len(made.drops) == 2, what="the stale frame's drop")
    assert filled[slot].was_awaited
    assert made.drops == [("a", 0, DropReason.OVERLOAD), ("b", 0, DropReason.STALE)]


def test_a_file_without_room_is_woken_when_there_is_some_and_nothing_of_it_is_dropped(rig):
    made = rig(max_batch=2, slots=8)
    made.hold()
    file, woken = made.intake("file", **WAITS), threading.Event()
    sequence = 0
    while file.has_room(woken.set):
        assert send(file, sequence, value=sequence)
        sequence += 1
    assert sequence == 2  # a batch's worth
    assert not woken.is_set()
    made.release()
    assert woken.wait(PATIENCE_S)
    assert made.scored(3) == [("plug", 0), ("file", 0), ("file", 1)]
    assert file.has_room(woken.set)
    assert made.drops == []


def test_files_leave_half_of_the_slots_to_the_others(rig):
    made = rig(max_batch=4, slots=9)
    made.hold()
    files = [made.intake(f"file{number}", **WAITS) for number in range(6)]
    sent = 0
    while (file := files[sent % 6]).has_room(lambda: None):
        assert send(file, sent, value=sent)
        sent += 1
    assert made.pool.free == 4
    assert made.intake("live", **MAKES_WAY).has_room(lambda: None)


def test_a_decoder_that_gives_many_frames_of_a_file_at_once_waits_for_slots(rig):
    made = rig(max_batch=2, slots=4)
    made.hold()
    file = made.intake("file", **WAITS)
    thread = threading.Thread(target=lambda: [send(file, sequence, value=sequence) for sequence in range(12)])
    thread.start()
    wait_until(lambda: made.engine._lock._waiters, what="the file waits for a slot")
    assert made.pool.free == 0
    made.release()
    thread.join(PATIENCE_S)
    assert made.scored(13)[1:] == [("file", sequence) for sequence in range(12)]


def test_frames_of_a_file_that_come_together_get_slots_together_and_leave_half_to_the_others(rig):
    made = rig(max_batch=4, slots=9)
    made.hold()
    file = made.intake("file", **WAITS)
    slots = file.take_slots(3)
    assert len(set(slots)) == 3
    slots += file.take_slots(100)
    assert len(set(slots)) == len(slots) == 4, "one is with the batch under way"
    assert made.pool.free == 4
    slots += file.take_slots(2)
    assert len(slots) == 5, "what has_room promises"
    for slot in slots:
        file.give_back(slot)


def test_samples_that_are_ready_reach_the_model_as_they_are(rig):
    made = rig(max_batch=4, slots=8)
    file = made.intake("file", **WAITS)
    samples = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 4, 4, 3) + 7
    file.fill([ref_of("file", sequence) for sequence in range(3)], file.take_slots(3), samples)
    made.scored(3)
    assert [(score.ref.sequence, score.classes[0]) for score in made.scores] == [(0, 7), (1, 8), (2, 9)]


def test_samples_of_another_size_are_an_error_and_cost_no_slot(rig):
    made = rig(max_batch=4, slots=8)
    file = made.intake("file", **WAITS)
    with pytest.raises((RuntimeError, IndexError)):
        file.fill([ref_of("file", 0)], file.take_slots(1), torch.zeros(1, 5, 5, 3))
    assert made.pool.free == 8


def test_after_stop_a_file_gets_no_slots(rig):
    made = rig(max_batch=4, slots=8)
    made.engine.stop()
    assert made.intake("file", **WAITS).take_slots(3) == []


def test_a_slot_that_was_not_filled_comes_back_and_wakes_who_waits(rig):
    made = rig(max_batch=1, slots=2)
    intake, woken = made.intake("file", **WAITS), threading.Event()
    slot = intake.take_slot()
    assert not intake.has_room(woken.set)
    intake.give_back(slot)
    assert woken.is_set()
    assert intake.has_room(woken.set)


def test_stop_finishes_what_was_submitted_and_tells_true_times(rig):
    made = rig(max_batch=4, max_wait=3600, slots=16)
    intake = made.intake("door", **MAKES_WAY)
    began_ns = time.monotonic_ns()
    assert all(send(intake, sequence, value=sequence) for sequence in range(3))
    made.engine.stop()
    assert made.scored(3) == [("door", 0), ("door", 1), ("door", 2)]
    assert all(began_ns <= scores.ready_ns <= scores.batched_ns <= scores.inferred_ns <= time.monotonic_ns() for scores in made.scores)


def test_after_stop_nothing_is_taken_and_what_is_under_way_is_dropped_and_counted(rig):
    made = rig()
    intake = made.intake("door", **MAKES_WAY)
    slot = intake.take_slot()
    made.engine.stop()
    intake.submit([ref_of("door", 3)], [slot])
    assert made.drops == [("door", 3, DropReason.SHUTDOWN)]
    assert intake.take_slot() is None
    file = made.intake("file", **WAITS)
    assert file.has_room(lambda: None)
    assert file.take_slot() is None


def test_stop_releases_files_that_wait(rig):
    made = rig(max_batch=1, slots=2)
    intake, woken, answers = made.intake("file", **WAITS), threading.Event(), []
    slots = [intake.take_slot(), intake.take_slot()]
    assert not intake.has_room(woken.set)
    thread = threading.Thread(target=lambda: answers.append(intake.take_slot()))
    thread.start()
    wait_until(lambda: len(made.engine._lock._waiters) == 2, what="the engine and the file wait")
    made.engine.stop()
    thread.join(PATIENCE_S)
    assert answers == [None]
    assert woken.is_set()
    for slot in slots:
        intake.give_back(slot)


def test_a_model_that_raises_ends_the_engine_which_publishes_nothing_more_and_releases_who_waits(rig):
    made = rig(SaysWhatItSees(raises_at=13), max_batch=1, slots=2)
    intake, woken, answers = made.intake("file", **WAITS), threading.Event(), []
    assert send(intake, 0, value=12)
    assert made.scored(1) == [("file", 0)]
    made.hold()
    assert send(intake, 1, value=13)
    assert not intake.has_room(woken.set)
    late = threading.Thread(target=lambda: answers.append((intake.take_slot(), intake.take_slot())))
    late.start()
    wait_until(lambda: made.engine._lock._waiters, what="the file waits for a slot")
    made.release()
    assert made.failed.wait(PATIENCE_S)
    late.join(PATIENCE_S)
    assert str(made.engine.failure) == "device-side assert"
    assert answers[0][1] is None
    assert woken.is_set()
    assert intake.has_room(woken.set)
    assert intake.take_slot() is None
    if (slot := answers[0][0]) is not None:  # it got the slot of the frame before, or none
        intake.submit([ref_of("file", 2)], [slot])
        assert made.drops == [("file", 2, DropReason.SHUTDOWN)]
    made.engine.stop()
    assert [(scores.ref.camera, scores.ref.sequence) for scores in made.scores] == [("file", 0), ("plug", 0)]


def test_each_model_gets_the_frames_of_its_own_cameras(rig):
    first, second = SaysWhatItSees(), SaysWhatItSees()
    made = rig(first, second)
    cameras = [made.intake(name, model=model, **MAKES_WAY) for name, model in (("a", "m0"), ("b", "m1"), ("c", "m0"))]
    for sequence in range(2):
        for number, intake in enumerate(cameras):
            assert send(intake, sequence, value=10 * number + sequence)
    made.scored(6)
    assert sorted(value for batch in first.seen for value in batch) == [0, 1, 20, 21]
    assert sorted(value for batch in second.seen for value in batch) == [10, 11]


def test_a_model_that_does_not_run_is_known_before_the_engine_starts():
    module = SaysWhatItSees()
    module.forward = lambda _: 1 / 0
    with pytest.raises(ZeroDivisionError):
        Rig(module)


def grey(level: int) -> Frame:
    luma = torch.full((8, 8), level, dtype=torch.uint8)
    return Frame(token=0, y=luma, u=None, v=None, bit_depth=8, shift=0, matrix=Matrix.BT601, full_range=True, rotation_deg=0)


def put(intake: Intake, sequence: int, frame: Frame) -> None:
    slot = intake.take_slot()
    assert slot is not None
    intake.put(frame, ref_of(intake.camera, sequence), slot)


def levels_seen(made: Rig, count: int) -> list[tuple[str, int, int]]:
    """Camera, sequence, and the level that the model saw."""
    made.scored(count)
    return [(scores.ref.camera, scores.ref.sequence, scores.classes[0]) for scores in made.scores]


@pytest.mark.parametrize("level", [0, 60, 255])
def test_a_decoded_frame_reaches_the_model_through_the_intake_preprocessed(rig, level):
    made = rig()
    put(made.intake("door", **MAKES_WAY), 0, grey(level))
    assert levels_seen(made, 1) == [("door", 0, level)]


@pytest.fixture
def gathers(rig, monkeypatch) -> Rig:
    """As on a GPU, frames of a thread are preprocessed together: three of them here."""
    monkeypatch.setattr(intake_module, "_GATHER_NS", 3_600_000_000_000)
    made = rig()
    made.engine.gathering = Gathering(made.engine, limit=3)
    return made


def test_frames_are_gathered_until_there_are_enough(gathers):
    door, yard = gathers.intake("door", **MAKES_WAY), gathers.intake("yard", **MAKES_WAY)
    put(door, 0, grey(10))
    put(yard, 0, grey(20))
    assert (door.gathered, yard.gathered, gathers.scores) == (1, 1, [])
    put(door, 1, grey(30))
    assert (door.gathered, yard.gathered) == (0, 0)
    assert sorted(levels_seen(gathers, 3)) == [("door", 0, 10), ("door", 1, 30), ("yard", 0, 20)]


def test_a_gathered_frame_goes_before_its_memory_is_overwritten(gathers):
    door, yard = gathers.intake("door", **MAKES_WAY), gathers.intake("yard", **MAKES_WAY)
    surface = grey(10)
    put(door, 0, surface)
    yard.settle()
    assert door.gathered == 1
    door.settle()
    surface.y.fill_(99)
    put(door, 1, surface)
    door.settle()
    assert levels_seen(gathers, 2) == [("door", 0, 10), ("door", 1, 99)]


def test_gathered_frames_go_when_the_thread_has_nothing_else_to_do(gathers):
    put(gathers.intake("door", **MAKES_WAY), 0, grey(10))
    gathers.engine.gathering.flush()
    assert levels_seen(gathers, 1) == [("door", 0, 10)]


def test_a_gathered_frame_does_not_wait_long_for_others(gathers, monkeypatch):
    monkeypatch.setattr(intake_module, "_GATHER_NS", 1_000_000)
    door = gathers.intake("door", **MAKES_WAY)
    put(door, 0, grey(10))
    time.sleep(0.002)
    put(door, 1, grey(20))
    assert levels_seen(gathers, 2) == [("door", 0, 10), ("door", 1, 20)]


def test_each_thread_gathers_for_itself(gathers):
    door = gathers.intake("door", **MAKES_WAY)
    put(door, 0, grey(10))
    other = threading.Thread(target=gathers.engine.gathering.flush)
    other.start()
    other.join()
    assert door.gathered == 1
    door.settle()
    assert levels_seen(gathers, 1) == [("door", 0, 10)]


def test_a_frame_that_cannot_be_preprocessed_costs_the_others_nothing(gathers):
    bad, good = gathers.intake("bad", **MAKES_WAY), gathers.intake("good", **MAKES_WAY)
    put(good, 0, grey(10))
    put(bad, 0, replace(grey(20), u=torch.zeros(3, 3, dtype=torch.uint8)))
    put(good, 1, grey(30))
    assert levels_seen(gathers, 2) == [("good", 0, 10), ("good", 1, 30)]
    assert gathers.drops == [("bad", 0, DropReason.DECODE_ERROR)]
    good.raise_failure()
    with pytest.raises(Exception, match=r"."):
        bad.raise_failure()
    bad.raise_failure()
