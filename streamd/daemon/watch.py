"""Sees changes of the configuration's files. The home of watchfiles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog
import watchfiles

_DEBOUNCE_MS = 500
"""A change is reported when nothing followed for a tenth of this, or after all of it."""
_RETRY_S = 5.0

log = structlog.get_logger()


async def watch(folder: Path, changed: Callable[[], None]) -> None:
    """Call `changed` after each change under `folder`, for ever."""
    while True:
        try:
            async for _ in watchfiles.awatch(folder, watch_filter=_is_ours, debounce=_DEBOUNCE_MS, ignore_permission_denied=True):
                changed()
        except (OSError, RuntimeError) as error:
            log.warning("the configuration cannot be watched; SIGHUP still reloads it", detail=str(error), retry_in_s=_RETRY_S)
        await asyncio.sleep(_RETRY_S)


def _is_ours(_change: watchfiles.Change, path: str) -> bool:
    """What the loader would pass over is passed over here; `..data` is the link that Kubernetes swaps to update a volume."""
    name = Path(path).name
    return name == "..data" or not (name.startswith((".", "~")) or name.endswith("~"))
