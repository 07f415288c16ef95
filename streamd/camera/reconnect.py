"""When a camera is tried again. Pure: time and chance are arguments."""

from __future__ import annotations

from dataclasses import dataclass

from streamd.config.types import ReconnectConfig

_JITTER = 0.2


@dataclass(slots=True)
class Backoff:
    """Exponential waits with jitter; see ReconnectConfig for the meaning of each."""

    config: ReconnectConfig
    failures: int = 0

    def next_wait_s(self, *, lasted_s: float, refused: bool, chance: float) -> float:
        """Seconds to wait after a connection that lasted `lasted_s`.

        Args:
            lasted_s: how long frames came; 0 when the connection was never up.
            refused: the credentials were refused.
            chance: uniform in [0, 1), spreads the wait by up to a fifth either way.
        """
        if lasted_s >= self.config.healthy_after:
            self.failures = 0
        if refused:
            wait_s = self.config.refused
        else:
            wait_s = min(self.config.initial * 2.0 ** min(self.failures, 64), self.config.max)
            self.failures += 1
        return wait_s * (1 - _JITTER + 2 * _JITTER * chance)
