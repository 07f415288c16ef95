"""What systemd is told, see sd_notify(3): ready, status, watchdog, reloading, stopping. Without $NOTIFY_SOCKET nothing happens."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import sdnotify


class Notifier:
    def __init__(self, environ: Mapping[str, str]) -> None:
        # sdnotify reads the environment itself, and leaks its socket where there is no address.
        self._systemd = sdnotify.SystemdNotifier() if environ.get("NOTIFY_SOCKET") else None
        self._status: str | None = None
        self.is_ready = False
        self.watchdog_interval_s = _watchdog_interval_s(environ) if self._systemd else None
        """How often to call `watchdog`: a third of the deadline that systemd set; None where it set none for this process."""

    def extend_start(self, seconds: float) -> None:
        """Models load: systemd is to wait `seconds` from now on at least."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def reloading(self) -> None:
        if self.is_ready:
            self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        if self.is_ready:
            self._send("READY=1")

    def ready(self) -> None:
        self.is_ready = True
        self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`; sent when it says something new."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def close(self) -> None:
        if self._systemd is not None and self._systemd.socket is not None:
            self._systemd.socket.close()

    def _send(self, message: str) -> None:
        if self._systemd is not None:
            self._systemd.notify(message)


def _watchdog_interval_s(environ: Mapping[str, str]) -> float | None:
    deadline_us = environ.get("WATCHDOG_USEC", "")
    meant_for = environ.get("WATCHDOG_PID", str(os.getpid()))
    if not deadline_us.isdecimal() or int(deadline_us) == 0 or meant_for != str(os.getpid()):
        return None
    return int(deadline_us) / 1e6 / 3
