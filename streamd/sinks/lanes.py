"""What waits for one key of Redis, and what became of it: pure bookkeeping, no connection, no clock.

A stream's entries have ids of our own, `<captured_ms>-<n>`, strictly increasing whatever the clock does, so Redis itself refuses an entry
that it already has. An entry keeps its id until it is known to be written or known not to be, and only then is it let go or given
another one. That is how a lost reply neither doubles nor loses a result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from streamd.records import CameraState, Event, Record, Result
from streamd.redisio import Backoff, Command, Reply, ServerError
from streamd.sinks.payload import payload

EntryId: TypeAlias = tuple[int, int]
"""Milliseconds and a counter: compared as Redis compares them."""
ZERO: EntryId = (0, 0)


class Attempt(NamedTuple):
    """A record on its way."""

    record: Record
    command: Command
    data: bytes
    """The record as JSON, as subscribers of the channel get it."""


@dataclass(slots=True)
class Settled:
    """What the replies to one lane's attempts mean."""

    written: list[Record] = field(default_factory=list)
    error: ServerError | None = None
    """Why at least one record could not be written; it stays in the lane."""
    conflict: bool = False
    """An id of ours was refused though it was new: something else writes to this stream. The lane takes another id."""


class Lane(Protocol):
    """The records for one key, in order."""

    key: str
    backoff: Backoff
    due_s: float
    """Monotonic time before which nothing is sent, 0 where the last attempt was no failure."""

    def __len__(self) -> int:
        """Records not known to be written."""
        ...

    def take(self, limit: int) -> list[Attempt]:
        """What to send next: first what may or may not have arrived, as it was; then what waits. It stays in the lane."""
        ...

    def settle(self, replies: Sequence[Reply]) -> Settled:
        """Learn the replies to what `take` gave last."""
        ...


@dataclass(slots=True, eq=False)
class _Entry:
    record: Result | Event
    entry_id: EntryId
    command: Command
    data: bytes
    is_repeated: bool = False
    """It was sent before, and no reply came: it may be in the stream."""


class StreamLane:
    """One stream and its only writer."""

    def __init__(self, key: str, *, max_entries: int) -> None:
        self.key = key
        self.backoff = Backoff()
        self.due_s = 0.0
        self._max_entries = max_entries
        self._last: EntryId | None = None
        self._waiting: deque[tuple[int, Result | Event]] = deque()
        self._sent: deque[_Entry] = deque()
        self._taken = 0
        self._doubtful: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    def put(self, record: Result | Event, *, number: int) -> None:
        """`number` increases with each record of the sink."""
        self._waiting.append((number, record))

    @property
    def oldest(self) -> int | None:
        """Number of the oldest record that may still be dropped: what was sent is not, since it may have arrived."""
        return self._waiting[0][0] if self._waiting else None

    def drop_oldest(self) -> Result | Event:
        return self._waiting.popleft()[1]

    # --- the last id of the stream, which the ids go on from

    @property
    def needs_last_id(self) -> bool:
        return self._last is None

    @property
    def last_id_command(self) -> Command:
        return ("XINFO", "STREAM", self.key)

    def learn_last_id(self, reply: Reply) -> ServerError | None:
        """Take note of the reply to `last_id_command`; what is returned is an error that stands in the way."""
        if isinstance(reply, ServerError):
            if reply.code != "ERR" or "no such key" not in reply.message:
                return reply
            self._last = ZERO
        else:
            self._last = parse_id(_pairs(reply)[b"last-generated-id"])
        return None

    # --- writing

    def take(self, limit: int) -> list[Attempt]:
        self._doubtful = []
        for entry in self._sent:
            entry.is_repeated = True
        while self._waiting and len(self._sent) < limit:
            self._sent.append(self._entry(self._waiting.popleft()[1]))
        self._taken = min(limit, len(self._sent))
        return [Attempt(entry.record, entry.command, entry.data) for entry, _ in zip(self._sent, range(self._taken), strict=False)]

    def settle(self, replies: Sequence[Reply]) -> Settled:
        settled = Settled()
        unsure: list[_Entry] = []
        again: list[_Entry] = []
        for reply in replies:
            entry = self._sent.popleft()
            if not isinstance(reply, ServerError):
                settled.written.append(entry.record)
            elif "equal or smaller" in reply.message:
                if entry.is_repeated:
                    self._doubtful.append(entry)
                    unsure.append(entry)
                else:
                    settled.conflict = True
                    self._last = None
                    again.append(entry)
            else:
                settled.error = reply
                (unsure if entry.is_repeated else again).append(entry)
        self._sent.extendleft(reversed(unsure))
        self._give_up_ids(again)
        return settled

    def _give_up_ids(self, entries: Sequence[_Entry]) -> None:
        """These are not in the stream: they wait again, before all others, which are younger."""
        # 0 keeps them the oldest; they are few, and which of two lanes gives up one first matters to nobody.
        self._waiting.extendleft((0, entry.record) for entry in reversed(entries))

    # --- entries that were sent twice and refused the second time

    @property
    def doubts(self) -> list[Command]:
        """Questions to ask after `settle`; empty where there is no doubt."""
        if not self._doubtful:
            return []
        ids = [format_id(entry.entry_id) for entry in self._doubtful]
        return [("XINFO", "STREAM", self.key), *(("XRANGE", self.key, one, one) for one in ids)]

    def resolve(self, replies: Sequence[Reply]) -> Settled:
        """Learn the replies to `doubts`.

        An entry counts as written if it is there, or if it would be trimmed by now: older than all of a stream that is full.
        """
        settled = Settled()
        doubtful, self._doubtful = self._doubtful, []
        settled.error = next((reply for reply in replies if isinstance(reply, ServerError)), None)
        if settled.error is not None:
            return settled
        info, *found = replies
        stream = _pairs(info)
        first = stream[b"first-entry"]
        oldest = parse_id(first[0]) if first and stream[b"length"] >= self._max_entries else ZERO
        missing: list[_Entry] = []
        for entry, there in zip(doubtful, found, strict=True):
            self._sent.remove(entry)
            if there or entry.entry_id < oldest:
                settled.written.append(entry.record)
            else:
                missing.append(entry)
        self._give_up_ids(missing)
        return settled

    def _entry(self, record: Result | Event) -> _Entry:
        assert self._last is not None
        wall_ms = record.captured_ms if isinstance(record, Result) else record.at_ms
        last_ms, count = self._last
        self._last = entry_id = (wall_ms, 0) if wall_ms > last_ms else (last_ms, count + 1)
        data = payload(record)
        head = ("XADD", self.key, "MAXLEN", "~", self._max_entries, format_id(entry_id))
        return _Entry(record, entry_id, (*head, *_fields(record), "data", data), data)


class StatesLane:
    """The hash of the cameras' current states: of a camera only the latest state is worth writing."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.backoff = Backoff()
        self.due_s = 0.0
        self._waiting: dict[str, CameraState] = {}
        self._sent: list[CameraState] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    def put(self, state: CameraState) -> None:
        self._waiting[state.camera] = state

    def take(self, limit: int) -> list[Attempt]:
        self._return(self._sent)
        self._sent = [self._waiting.pop(camera) for camera in list(self._waiting)[:limit]]
        return [Attempt(state, ("HSET", self.key, state.camera, data), data) for state in self._sent for data in [payload(state)]]

    def settle(self, replies: Sequence[Reply]) -> Settled:
        settled = Settled()
        sent, self._sent = self._sent, []
        for state, reply in zip(sent, replies, strict=True):
            if isinstance(reply, ServerError):
                settled.error = reply
                self._return([state])
            else:
                settled.written.append(state)
        return settled

    def _return(self, states: Sequence[CameraState]) -> None:
        for state in states:
            self._waiting.setdefault(state.camera, state)


def _pairs(reply: Reply) -> dict[bytes, Any]:
    assert isinstance(reply, list)
    return dict(zip(reply[::2], reply[1::2], strict=True))


def format_id(entry_id: EntryId) -> str:
    return f"{entry_id[0]}-{entry_id[1]}"


def parse_id(text: bytes) -> EntryId:
    milliseconds, _, count = text.partition(b"-")
    return int(milliseconds), int(count)


def _fields(record: Result | Event) -> Command:
    """What can be read without parsing JSON, with redis-cli say."""
    if isinstance(record, Event):
        return ("kind", record.kind.value, "camera", record.camera or "")
    best = record.labels[0] if record.labels else None
    return ("label", best.label.encode("utf-8", "replace") if best else "", "score", best.score if best else 0.0)
