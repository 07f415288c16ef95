"""What systemd is told, see sd_notify(3): ready, status, watchdog, stopping. Without $NOTIFY_SOCKET everything here does nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping

import sdnotify


class Notifier:
    def __init__(self, environ: Mapping[str, str]) -> None:
        # sdnotify reads the environment itself, and leaks its socket where there is no address.
        self._systemd = sdnotify.SystemdNotifier() if environ.get("NOTIFY_SOCKET") else None
        self._status: str | None = None
        self.watchdog_interval_s = _watchdog_interval_s(environ) if self._systemd else None
        """How often to call `watchdog`: a third of the deadline that systemd set; None where it set none for this process."""

    def ready(self) -> None:
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
