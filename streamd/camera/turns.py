"""Whose turn it is on a decode thread: the most urgent first, and equals in the order in which they asked. Pure; nothing blocks."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

Urgency = tuple[int, float]
"""Larger goes first. Rank (see CameraConfig.rank), then the share of packets that were given up lately: who lost most goes first among
equals, so that all of them are slowed alike, however seldom a camera's stream can be entered."""

LEAST: Urgency = (0, 0.0)
MOST: Urgency = (1 << 30, 0.0)

T = TypeVar("T", bound=Hashable)


class Turns(Generic[T]):
    """Each waits once at most; asking again with more urgency moves it forward."""

    def __init__(self) -> None:
        self._asked: dict[T, tuple[Urgency, int]] = {}
        self._heap: list[tuple[int, float, int, T]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._asked)

    def __contains__(self, item: T) -> bool:
        return item in self._asked

    def ask(self, item: T, urgency: Urgency) -> None:
        """Have `item` come up."""
        if item in self._asked and self._asked[item][0] >= urgency:
            return
        number = next(self._numbers)
        self._asked[item] = (urgency, number)
        heapq.heappush(self._heap, (-urgency[0], -urgency[1], number, item))

    def next(self) -> T:
        """Whose turn it is. Raises IndexError when nobody waits."""
        while True:
            *_, number, item = heapq.heappop(self._heap)
            asked = self._asked.get(item)
            if asked is not None and asked[1] == number:  # else it was moved forward
                del self._asked[item]
                return item
