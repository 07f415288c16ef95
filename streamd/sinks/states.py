"""The lane of the cameras' current states. Never on disk: states are written again."""

from __future__ import annotations

from collections.abc import Sequence

from streamd.records import CameraRemoved, CameraState
from streamd.redisio import Backoff, Reply, ServerError
from streamd.sinks.lanes import Attempt, Entry, Settled
from streamd.sinks.payload import payload


class StatesLane:
    """The hash of the cameras' current states: of a camera only the latest state, or its removal, is worth writing."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.backoff = Backoff()
        self.due_s = 0.0
        self._waiting: dict[str, CameraState | CameraRemoved] = {}
        self._sent: list[CameraState | CameraRemoved] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    def put(self, state: CameraState | CameraRemoved) -> None:
        self._waiting[state.camera] = state

    def take(self, limit: int) -> list[Attempt]:
        self._return(self._sent)
        self._sent = [self._waiting.pop(camera) for camera in list(self._waiting)[:limit]]
        return [self._attempt(state) for state in self._sent]

    def _attempt(self, state: CameraState | CameraRemoved) -> Attempt:
        data = payload(state)
        is_removal = isinstance(state, CameraRemoved)
        return Attempt(state, ("HDEL", self.key, state.camera) if is_removal else ("HSET", self.key, state.camera, data), data)

    def settle(self, replies: Sequence[Reply]) -> Settled:
        settled = Settled()
        sent, self._sent = self._sent, []
        for state, reply in zip(sent, replies, strict=True):
            if isinstance(reply, ServerError):
                settled.error = reply
                self._return([state])
            else:
                settled.written.append(Entry(state, None))
        return settled

    def _return(self, states: Sequence[CameraState | CameraRemoved]) -> None:
        for state in states:
            self._waiting.setdefault(state.camera, state)
