"""Logging of the daemon and its workers: one line an event on standard error, JSON or, on a terminal, coloured text. It never writes files.

Everything passes through here: structlog's loggers, the standard library's (redis, asyncio, warnings), and exceptions that nobody
caught. Each text is redacted, tracebacks too. `camera`, `session` and `worker` are the names of the fields to bind.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TextIO

import structlog
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.processors import JSONRenderer, TimeStamper, format_exc_info
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

from streamd.redact import HIDDEN, redact

LEVELS = ("debug", "info", "warning", "error", "critical")

_SYSLOG_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""See syslog(3); systemd-journald reads them from a `<N>` in front of a line, see sd-daemon(3)."""

_NEVER_SHOWN = frozenset({"password", "passphrase", "secret", "authorization"})
"""Text under one of these keys is hidden, short ones included."""


def is_json(*, asked: bool | None) -> bool:
    """Whether lines are JSON: as asked, and where nothing was asked unless standard error is a terminal."""
    return not sys.stderr.isatty() if asked is None else asked


def configure(*, level: str, json: bool | None, worker: str | None = None) -> None:
    """Set up logging of this process, once, as its program starts. `level` is one of LEVELS; `json` None decides by standard error.

    `worker` is bound to each line, whichever thread writes it.
    """
    lines_are_json = is_json(asked=json)
    # All lines take the same way: what a structlog logger does itself is only what must happen in the caller's thread.
    in_caller: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*in_caller, structlog.stdlib.PositionalArgumentsFormatter(), ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    # Never structlog's own rich tracebacks: they show local variables, credentials among them.
    console = ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain_traceback)
    rendered: list[Processor] = [
        ProcessorFormatter.remove_processors_meta,
        format_exc_info,
        _Arrange(worker=worker),
        JSONRenderer(ensure_ascii=False) if lines_are_json else console,
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(rendered, in_caller, for_journal=_is_journal(sys.stderr)))
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


class _Arrange:
    """Redacts every field, and puts first what a reader looks for first."""

    def __init__(self, *, worker: str | None) -> None:
        self._worker = worker

    def __call__(self, _logger: object, _method: str, event_dict: EventDict) -> EventDict:
        # The time stamp is ours; redacting it would let a password of four digits eat the year.
        first: EventDict = {"timestamp": event_dict.pop("timestamp"), "level": event_dict.pop("level")}
        first["event"] = _redacted(event_dict.pop("event", ""))
        worker = event_dict.pop("worker", self._worker)
        if worker is not None:
            first["worker"] = worker
        return {**first, **_redacted(event_dict)}


def _redacted(value: Any) -> Any:
    """`value` as data that a renderer shows as it is: objects become text here, or they would become text behind our back."""
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {
            redact(str(key)): HIDDEN if isinstance(item, str) and key in _NEVER_SHOWN else _redacted(item) for key, item in value.items()
        }
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray | memoryview):
        return [_redacted(item) for item in value]
    return redact(str(value))


def _redacted_under(key: object, value: Any) -> Any:
    return HIDDEN if key in _NEVER_SHOWN and isinstance(value, str) else _redacted(value)


class _Formatter(ProcessorFormatter):
    def __init__(self, processors: list[Processor], foreign_pre_chain: list[Processor], *, for_journal: bool) -> None:
        super().__init__(processors=processors, foreign_pre_chain=foreign_pre_chain)
        self._for_journal = for_journal

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not self._for_journal:
            return text
        # The journal makes an entry of each line, so each line of a traceback needs its own priority.
        priority = f"<{_SYSLOG_PRIORITY.get(record.levelname.lower(), 6)}>"
        return "\n".join(priority + line for line in text.splitlines())


def _is_journal(stream: TextIO) -> bool:
    """Whether systemd connected `stream` to the journal: $JOURNAL_STREAM holds its device and inode, see systemd.exec(5)."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or no file at all
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    structlog.get_logger().critical("uncaught exception", exc_info=(kind, error, traceback))


def _log_uncaught_in_thread(uncaught: threading.ExceptHookArgs) -> None:
    thread = uncaught.thread.name if uncaught.thread else None
    structlog.get_logger().critical("uncaught exception in a thread", thread=thread, exc_info=uncaught.exc_value)
