"""Where streamd keeps what survives a restart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def state_folder(configured: Path | None, environ: Mapping[str, str]) -> Path:
    """`state_dir` if it is given; else the folder that systemd made for the service (the first of $STATE_DIRECTORY), else the user's:
    $XDG_STATE_HOME/streamd or ~/.local/state/streamd. It may not exist yet.
    """
    if configured is not None:
        return configured
    if by_systemd := environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(by_systemd)
    return Path(environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or "/tmp") / ".local" / "state") / "streamd"  # noqa: S108
