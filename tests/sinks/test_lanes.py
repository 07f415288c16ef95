"""The bookkeeping of streams and states, against a model of what Redis does."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import NOW_MS, event, result, state

from streamd.records import CameraRemoved, Phase
from streamd.redisio import ServerError
from streamd.sinks.lanes import StreamLane, parse_id
from streamd.sinks.states import StatesLane

OOM = ServerError("OOM", "command not allowed when used memory > 'maxmemory'.")
NOT_NEWER = ServerError("ERR", "The ID specified in XADD is equal or smaller than the target stream top item")
NO_KEY = ServerError("ERR", "no such key")


class Stream:
    """The rules of a stream of Redis, as far as they matter here."""

    def __init__(self, *, max_entries: int | None = None) -> None:
        self.entries: list[tuple[bytes, dict]] = []
        self.last = (0, 0)
        self.max_entries = max_entries

    def __call__(self, command):
        name, *rest = command
        return getattr(self, name.lower())(*rest)

    def xinfo(self, *_stream_key):
        if self.last == (0, 0):
            return NO_KEY
        first = self.entries[0] if self.entries else None
        return [b"length", len(self.entries), b"last-generated-id", b"%d-%d" % self.last, b"first-entry", first]

    def xadd(self, _key, _maxlen, _about, _max_entries, entry_id, *fields):
        new = parse_id(entry_id.encode())
        if new <= self.last:
            return NOT_NEWER
        self.last = new
        self.entries.append((entry_id.encode(), json.loads(fields[-1])))
        if self.max_entries is not None:
            del self.entries[: -self.max_entries]
        return entry_id.encode()

    def xrange(self, _key, first, _last):
        return [entry for entry in self.entries if entry[0] == first.encode()]

    @property
    def sequences(self) -> list[int]:
        return [data["sequence"] for _, data in self.entries]


def ready(*sequences: int, max_entries: int = 100) -> StreamLane:
    """A lane on an empty stream, with results that wait."""
    lane = StreamLane("r", max_entries=max_entries)
    assert lane.learn_last_id(NO_KEY) is None
    for sequence in sequences:
        lane.put(result(sequence=sequence), at_ns=sequence)
    return lane


def exchange(lane: StreamLane, stream: Stream, *, limit: int = 500):
    """One pipeline without faults, as the sink runs it."""
    if lane.needs_last_id:
        lane.learn_last_id(stream(lane.last_id_command))
    settled = lane.settle([stream(attempt.command) for attempt in lane.take(limit)])
    if lane.doubts:
        settled.written += lane.resolve([stream(doubt) for doubt in lane.doubts]).written
    return [entry.record.sequence for entry in settled.written]


@given(st.lists(st.integers(min_value=-5, max_value=2**62) | st.integers(min_value=0, max_value=3), max_size=40))
def test_ids_strictly_increase_whatever_the_clock_does(captured_ms):
    lane = ready()
    for number, at_ms in enumerate(captured_ms):
        lane.put(result(sequence=number, captured_ms=at_ms), at_ns=number)
    ids = [parse_id(attempt.command[5].encode()) for attempt in lane.take(100)]
    assert all(before < after for before, after in zip([(0, 0), *ids], ids, strict=False))


def test_an_id_is_the_time_of_capture_where_the_clock_allows():
    lane = ready(0, 1)
    assert [attempt.command[5] for attempt in lane.take(9)] == [f"{NOW_MS}-0", f"{NOW_MS + 40}-0"]


def test_ids_go_on_above_those_that_the_stream_has():
    lane, stream = ready(), Stream()
    lane.put(result(), at_ns=1)
    stream.last = (NOW_MS + 5000, 7)
    lane = StreamLane("r", max_entries=9)
    lane.put(result(), at_ns=1)
    exchange(lane, stream)
    assert stream.last == (NOW_MS + 5000, 8)


def test_events_have_ids_of_their_own_time():
    lane = ready()
    lane.put(event(at_ms=NOW_MS + 3), at_ns=1)
    assert lane.take(1)[0].command[5:10] == (f"{NOW_MS + 3}-0", "kind", "up", "camera", "door")


def test_what_may_have_arrived_is_sent_again_with_the_same_ids_before_all_else():
    lane = ready(0, 1)
    first = lane.take(9)
    lane.put(result(sequence=2), at_ns=2)
    again = lane.take(9)
    assert again[:2] == first
    assert [attempt.record.sequence for attempt in again] == [0, 1, 2]


def test_what_did_arrive_is_written_and_not_doubled():
    lane, stream = ready(0, 1, 2), Stream()
    for attempt in lane.take(9)[:2]:  # the server got two, and its replies were lost
        stream(attempt.command)
    assert exchange(lane, stream) == [2, 0, 1]
    assert (stream.sequences, len(lane)) == ([0, 1, 2], 0)


def test_what_arrived_and_was_trimmed_since_counts_as_written():
    lane, stream = ready(0, 1, 2, max_entries=1), Stream(max_entries=1)
    for attempt in lane.take(9):
        stream(attempt.command)
    assert sorted(exchange(lane, stream)) == [0, 1, 2]
    assert stream.sequences == [2]


def test_an_entry_that_was_refused_unheard_and_overtaken_is_not_taken_for_written():
    lane, stream = ready(0, 1), Stream()
    overtaken, arrived = lane.take(9)  # the first met a full server, the second did not, and no reply came
    stream(arrived.command)
    assert exchange(lane, stream) == [1]
    assert exchange(lane, stream) == [0]
    assert sorted(stream.sequences) == [0, 1]
    assert overtaken.command[5] != stream.entries[-1][0].decode()


def test_another_writers_entries_make_the_lane_ask_for_the_last_id_again():
    lane, stream = ready(0), Stream()
    stream.last = (NOW_MS + 10**6, 0)
    settled = lane.settle([stream(attempt.command) for attempt in lane.take(9)])
    assert (settled.conflict, settled.written, lane.needs_last_id) == (True, [], True)
    assert exchange(lane, stream) == [0]


def test_a_refused_record_stays_the_oldest():
    lane = ready(5, 6)
    lane.settle([OOM for _ in lane.take(1)])
    assert [attempt.record.sequence for attempt in lane.take(9)] == [5, 6]


def test_what_was_sent_cannot_be_dropped():
    lane = ready(0, 1)
    lane.take(1)
    assert lane.drop_oldest().sequence == 1
    assert (lane.oldest_ns, len(lane)) == (None, 1)


@given(seed=st.integers(0, 2**32), count=st.integers(1, 25))
def test_no_series_of_faults_loses_or_doubles_a_record(seed, count):
    """Refusals in the midst of a pipeline, commands that get lost, replies that get lost, and commands that arrive late."""
    faults = random.Random(seed)
    lane, stream, delayed, written = ready(*range(count)), Stream(), [], []
    for _ in range(faults.randint(0, 12)):
        if lane.needs_last_id:
            lane.learn_last_id(stream(lane.last_id_command))
        commands = [attempt.command for attempt in lane.take(faults.randint(1, 8))]
        arriving = commands[: faults.randint(0, len(commands))] if faults.random() < 0.5 else commands
        if faults.random() < 0.2:  # the old connection's commands are still in the socket when the next one is served
            delayed += arriving
            continue
        replies = [OOM if faults.random() < 0.3 else stream(command) for command in arriving]
        while delayed and faults.random() < 0.5:
            stream(delayed.pop(0))
        if len(replies) < len(commands) or faults.random() < 0.3:
            continue  # no reply is heard
        written += [entry.record.sequence for entry in lane.settle(replies).written]
        if (doubts := lane.doubts) and faults.random() < 0.7:
            written += [entry.record.sequence for entry in lane.resolve([stream(doubt) for doubt in doubts]).written]
    for command in delayed:
        stream(command)
    while len(lane):
        written += exchange(lane, stream)
    assert sorted(written) == sorted(stream.sequences) == list(range(count))


@pytest.mark.parametrize("reply", [ServerError("WRONGTYPE", "Operation against a key"), ServerError("ERR", "something else")])
def test_an_error_instead_of_the_last_id_is_given_back(reply):
    lane = StreamLane("r", max_entries=9)
    assert lane.learn_last_id(reply) == reply
    assert lane.needs_last_id


def test_of_a_camera_only_the_latest_state_waits():
    lane = StatesLane("c")
    for phase in (Phase.CONNECTING, Phase.UP):
        lane.put(state("door", phase=phase))
    lane.put(state("yard"))
    assert [(attempt.record.camera, attempt.record.phase) for attempt in lane.take(9)] == [("door", Phase.UP), ("yard", Phase.UP)]


def test_a_refused_state_gives_way_to_a_newer_one():
    lane = StatesLane("c")
    lane.put(state(phase=Phase.UP))
    lane.take(9)
    lane.put(state(phase=Phase.DOWN))
    assert lane.settle([OOM]).error == OOM
    assert [attempt.record.phase for attempt in lane.take(9)] == [Phase.DOWN]
    assert len(lane) == 1


def test_a_camera_that_is_removed_leaves_the_hash_whatever_waited_of_it():
    lane = StatesLane("c")
    lane.put(state())
    lane.put(CameraRemoved(camera=state().camera))
    (attempt,) = lane.take(10)
    assert attempt.command == ("HDEL", "c", state().camera)
    assert len(lane.settle([1]).written) == 1
    assert not len(lane)
