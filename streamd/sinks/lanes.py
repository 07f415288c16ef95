"""What waits for one key of Redis, and what became of it: pure bookkeeping, no connection, no disk, no clock.

A stream's entries have ids of our own, `<captured_ms>-<n>`, strictly increasing whatever the clock does, so Redis itself refuses an entry
that it already has. An entry keeps its id until it is known to be written or known not to be, and only then is it let go or given
another one. That is how a lost reply neither doubles nor loses a result.

A lane is a queue in three parts: its head in memory, what follows in the spool (see overflow.py), and its tail in memory again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeAlias

from streamd.records import Event, Record, Result
from streamd.redisio import Backoff, Command, Reply, ServerError
from streamd.sinks.payload import payload

EntryId: TypeAlias = tuple[int, int]
"""Milliseconds and a counter: compared as Redis compares them."""
ZERO: EntryId = (0, 0)


@dataclass(slots=True, eq=False)
class Entry:
    """A record and what is known of it."""

    record: Record
    put_ns: int | None
    """When it came, monotonic; None: it was on disk meanwhile."""
    entry_id: EntryId | None = None
    """Of a stream's entry: the id under which it was or will be sent."""
    row: int | None = None
    """Its place in the spool; None: it is in memory only."""
    is_kept: bool = False
    """Its row has its id too."""
    is_repeated: bool = False
    """It was sent before, and no reply came: it may be in the stream."""
    size: int = 0
    """Bytes that its row takes."""


class Attempt(NamedTuple):
    """A record on its way."""

    record: Record
    command: Command
    data: bytes
    """The record as JSON, as subscribers of the channel get it."""


@dataclass(slots=True)
class Settled:
    """What the replies to one lane's attempts mean."""

    written: list[Entry] = field(default_factory=list)
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


class StreamLane:
    """One stream and its only writer."""

    def __init__(self, key: str, *, max_entries: int, holds: type[Result | Event] = Result) -> None:
        self.key = key
        self.holds = holds
        self.backoff = Backoff()
        self.due_s = 0.0
        self.on_disk = 0
        """Records in the spool that are not in memory, between the head and the tail."""
        self.last_row = 0
        """The spool's rows up to this one are in the head, or gone."""
        self._max_entries = max_entries
        self._last: EntryId | None = None
        self._head: deque[Entry] = deque()
        self._tail: deque[Entry] = deque()
        self._doubtful: list[Entry] = []

    def __len__(self) -> int:
        return self.in_memory + self.on_disk

    @property
    def in_head(self) -> int:
        return len(self._head)

    @property
    def in_memory(self) -> int:
        return len(self._head) + len(self._tail)

    def put(self, record: Result | Event, *, at_ns: int) -> None:
        """`at_ns` is monotonic."""
        self._tail.append(Entry(record, at_ns))

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest record came that may still be dropped: what was sent is not, since it may have arrived."""
        return self._tail[0].put_ns if self._tail else None

    def drop_oldest(self) -> Record:
        return self._tail.popleft().record

    # --- to the spool and back

    def take_for_disk(self) -> list[Entry]:
        """All that is in memory only leaves, for the end of the spool. `put_back` or `moved` follows."""
        leaving = [entry for entry in self._head if entry.row is None]
        if leaving:
            self._head = deque(entry for entry in self._head if entry.row is not None)
        leaving += self._tail
        self._tail.clear()
        return leaving

    def put_back(self, entries: Sequence[Entry]) -> None:
        """They could not be written to the spool."""
        unsent = [entry for entry in entries if entry.entry_id is None]
        self._tail.extendleft(reversed(unsent))
        self._head.extend(entry for entry in entries if entry.entry_id is not None)

    def moved(self, count: int) -> None:
        """So many are in the spool now."""
        self.on_disk += count

    def loaded(self, entries: Sequence[Entry], *, rows: int, last_row: int) -> None:
        """The next `rows` rows of the spool, up to `last_row`, left it; `entries` of them are sent next."""
        self._head.extend(entries)
        self.on_disk = max(0, self.on_disk - rows)
        self.last_row = max(self.last_row, last_row)

    def gave_up(self, rows: int) -> None:
        """So many rows were removed from the spool."""
        self.on_disk = max(0, self.on_disk - rows)

    def lost_disk(self) -> int:
        """The spool's file is another one; returns how many records were in the old one and nowhere else."""
        lost, self.on_disk, self.last_row = self.on_disk, 0, 0
        for entry in self._head:
            entry.row = None
        return lost

    @property
    def unkept(self) -> list[Entry]:
        """After `take`: what is about to be sent under an id that its row in the spool does not have."""
        return [entry for entry in self._head if entry.row is not None and entry.entry_id is not None and not entry.is_kept]

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
        while not self.on_disk and self._tail and len(self._head) < limit:
            self._head.append(self._tail.popleft())
        return [self._attempt(entry) for entry in islice(self._head, limit)]

    def settle(self, replies: Sequence[Reply]) -> Settled:
        settled = Settled()
        stay: list[Entry] = []
        for reply in replies:
            entry = self._head.popleft()
            if not isinstance(reply, ServerError):
                settled.written.append(entry)
                continue
            stay.append(entry)
            if "equal or smaller" in reply.message:
                if entry.is_repeated:
                    self._doubtful.append(entry)
                else:
                    settled.conflict = True
                    self._last = None
                    _give_up_ids([entry])
            else:
                settled.error = reply
                if not entry.is_repeated:
                    _give_up_ids([entry])
        self._head.extendleft(reversed(stay))
        return settled

    # --- entries that were sent twice and refused the second time

    @property
    def doubts(self) -> list[Command]:
        """Questions to ask after `settle`; empty where there is no doubt."""
        if not self._doubtful:
            return []
        ids = [format_id(entry.entry_id) for entry in self._doubtful if entry.entry_id is not None]
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
        self._last = max(self._last or ZERO, parse_id(stream[b"last-generated-id"]))
        for entry, there in zip(doubtful, found, strict=True):
            if there or (entry.entry_id or ZERO) < oldest:
                self._head.remove(entry)
                settled.written.append(entry)
            else:
                _give_up_ids([entry])
        return settled

    def _attempt(self, entry: Entry) -> Attempt:
        record = entry.record
        assert self._last is not None
        assert isinstance(record, Result | Event)
        if entry.entry_id is not None:
            entry.is_repeated = True
            self._last = max(self._last, entry.entry_id)
        else:
            wall_ms = record.captured_ms if isinstance(record, Result) else record.at_ms
            last_ms, count = self._last
            self._last = entry.entry_id = (wall_ms, 0) if wall_ms > last_ms else (last_ms, count + 1)
        data = payload(record)
        head = ("XADD", self.key, "MAXLEN", "~", self._max_entries, format_id(entry.entry_id))
        return Attempt(record, (*head, *_fields(record), "data", data), data)


def _give_up_ids(entries: Iterable[Entry]) -> None:
    """These are not in the stream: they are sent under other ids, in their place."""
    for entry in entries:
        entry.entry_id, entry.is_kept, entry.is_repeated = None, False, False


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
