"""The lane of the cameras' current states: of a camera only the latest state is worth writing. Never on disk: states are written again."""

from __future__ import annotations

from collections.abc import Sequence

from streamd.records import CameraState
from streamd.redisio import Backoff, Reply, ServerError
from streamd.sinks.lanes import Attempt, Entry, Settled
from streamd.sinks.payload import payload


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
                settled.written.append(Entry(state, None))
        return settled

    def _return(self, states: Sequence[CameraState]) -> None:
        for state in states:
            self._waiting.setdefault(state.camera, state)
