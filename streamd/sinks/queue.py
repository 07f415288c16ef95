"""The lanes of the Redis sink, by key, and how much they may hold in memory."""

from __future__ import annotations

import time

from streamd.config.types import RedisConfig
from streamd.records import CameraRemoved, CameraState, Event, Record, Result
from streamd.sinks.lanes import Lane, StreamLane
from streamd.sinks.states import StatesLane


class Queue:
    """A stream a camera, one for events, and the hash of states."""

    def __init__(self, config: RedisConfig) -> None:
        self._config = config
        self._results_of = f"{config.prefix}:results:"
        self.streams: dict[str, StreamLane] = {}
        """By key."""
        self._states = StatesLane(f"{config.prefix}:cameras")
        self._events = self.stream(f"{config.prefix}:events")
        self.in_memory = 0
        """Records that are in memory; who takes some away or brings some back counts here."""

    @property
    def on_disk(self) -> int:
        """Records that are in the spool."""
        return sum(lane.on_disk for lane in self.streams.values())

    def stream(self, key: str) -> StreamLane:
        """The lane of a key."""
        lane = self.streams.get(key)
        if lane is None:
            holds = Result if key.startswith(self._results_of) else Event
            lane = self.streams[key] = StreamLane(key, max_entries=self._config.max_entries, holds=holds)
        return lane

    def camera_of(self, key: str) -> str | None:
        """Whose results a key holds."""
        return key.removeprefix(self._results_of) if key.startswith(self._results_of) else None

    def put(self, record: Record, *, refuse: bool) -> Record | None:
        """Queue a record. An older state of the same camera that still waits is replaced. Returns a record that makes way: with `refuse`
        this one, if others of its lane are on disk; the oldest result, or where there is none the oldest event, if memory is full.
        """
        if isinstance(record, CameraState | CameraRemoved):
            before = len(self._states)
            self._states.put(record)
            self.in_memory += len(self._states) - before
        else:
            lane = self._events if isinstance(record, Event) else self.stream(self._results_of + record.camera)
            if refuse and lane.on_disk:
                return record
            lane.put(record, at_ns=time.monotonic_ns())
            self.in_memory += 1
        return self._make_room() if self.in_memory > self._config.max_queue else None

    def lanes(self) -> list[Lane]:
        """Those with something to send, events and states first."""
        lanes: list[Lane] = [self._events, self._states, *self.streams.values()]
        return [lane for lane in dict.fromkeys(lanes) if len(lane)]

    def _make_room(self) -> Record | None:
        """What was sent stays, as do states: they are few."""
        candidates = [(lane.oldest_ns, lane) for lane in self.streams.values() if lane is not self._events]
        oldest = min(((at_ns, lane) for at_ns, lane in candidates if at_ns is not None), key=lambda found: found[0], default=None)
        lane = oldest[1] if oldest else self._events
        if lane.oldest_ns is None:
            return None
        self.in_memory -= 1
        return lane.drop_oldest()
