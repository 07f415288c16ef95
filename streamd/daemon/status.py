"""The line that `systemctl status` shows, and more time for the start while models load."""

from __future__ import annotations

import asyncio

from streamd.daemon.cameras import Cameras
from streamd.daemon.notify import Notifier
from streamd.records import Phase
from streamd.worker.protocol import Counts

_SAY_S = 5.0
"""Between two lines."""
_START_MOST_S = 1800.0
"""How long the start may take at most: a worker that dies again and again is no start."""


class Status:
    """How many cameras are up, and how many frames a second are published."""

    def __init__(self, notifier: Notifier, cameras: Cameras) -> None:
        self._notifier = notifier
        self._cameras = cameras
        self._published: dict[str, tuple[int, int]] = {}
        """Of each worker, a time in ns and the results written by then."""
        self._rates: dict[str, float] = {}

    async def run(self) -> None:
        """For ever."""
        begun_s = asyncio.get_running_loop().time()
        while True:
            if self._notifier.is_ready:
                self.say()
            elif asyncio.get_running_loop().time() - begun_s < _START_MOST_S:
                self._notifier.extend_start(3 * _SAY_S)
            await asyncio.sleep(_SAY_S)

    def counted(self, worker: str, counts: Counts) -> None:
        published = sum(ledger.published for ledger in counts.ledgers.values())
        before_ns, before = self._published.get(worker, (0, 0))
        if not before_ns or published < before or counts.at_ns - before_ns >= _SAY_S * 1e9:
            if before_ns and published >= before:
                self._rates[worker] = (published - before) / ((counts.at_ns - before_ns) / 1e9)
            self._published[worker] = counts.at_ns, published

    def forget(self, worker: str) -> None:
        """It died."""
        self._rates.pop(worker, None)
        self._published.pop(worker, None)

    def say(self) -> None:
        rate = f", {sum(self._rates.values()):.1f} frames/s" if self._rates else ""
        self._notifier.status(f"{self._cameras.count(Phase.UP)} of {len(self._cameras.states)} cameras up{rate}")
