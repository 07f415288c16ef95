"""Loads the configuration again when it changed on disk or when somebody asks, and hands what follows from it to the fleet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from streamd.config import load, secrets
from streamd.config.types import Config
from streamd.daemon.fleet import Fleet
from streamd.daemon.notify import Notifier
from streamd.daemon.plan import RESTART, Plan, plan
from streamd.daemon.watch import watch
from streamd.errors import ConfigError
from streamd.records import Event, EventKind, Record
from streamd.redact import add_secrets, redact

log = structlog.get_logger()


class Reloads:
    """One reload at a time; what is asked for meanwhile is one more afterwards."""

    def __init__(self, path: Path, fleet: Fleet, *, put: Callable[[Record], None], notifier: Notifier) -> None:
        """`path`: streamd.yaml."""
        self._path = path
        self._fleet = fleet
        self._put = put
        self._notifier = notifier
        self._asked = asyncio.Event()
        self.succeeded = 0
        """Reloads that changed something."""
        self.failed = 0
        self.last_ms: int | None = None
        """When the last of either ended, Unix milliseconds."""

    def ask(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        """For ever."""
        watching = asyncio.create_task(watch(self._path.parent, self.ask))
        try:
            while True:
                await self._asked.wait()
                self._asked.clear()
                self._notifier.reloading()
                await self._reload()
                self._notifier.reloaded()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _reload(self) -> None:
        try:
            new = await asyncio.to_thread(load, self._path)
            add_secrets(secrets(new))
            found = plan(self._fleet.config, new)
            self._fleet.check(found.config)
        except ConfigError as error:
            self.failed += 1
            self._note(EventKind.RELOAD_FAILED, redact(str(error).splitlines()[0]))
            log.error(  # noqa: TRY400 - the sentence says it all
                "the changed configuration cannot be used; the one before stays in effect", detail=redact(str(error))
            )
            return
        if found.is_empty:
            log.debug("the configuration did not change")
            return
        self._apply(new, found)

    def _apply(self, new: Config, found: Plan) -> None:
        if found.not_applied:
            log.warning("a part of the new configuration is not in effect", hint=RESTART, sections=list(found.not_applied))
        self._fleet.apply(found)
        self.succeeded += 1
        self._note(EventKind.RELOADED, str(found))
        log.info("configuration reloaded", detail=str(found), cameras=len(new.cameras))

    def _note(self, kind: EventKind, detail: str) -> None:
        self.last_ms = time.time_ns() // 1_000_000
        self._put(Event(kind=kind, at_ms=self.last_ms, detail=detail))
