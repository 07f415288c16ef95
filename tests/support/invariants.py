"""What must be as it was when a test ends: threads, child processes, tasks, environment, working directory, logging."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import structlog

from support.wait import wait_until

GRACE_S = 3.0
"""How long a thread or process that was told to end may take."""


def threads() -> set[threading.Thread]:
    """The threads that would keep the interpreter alive."""
    return {thread for thread in threading.enumerate() if not thread.daemon}


def children() -> dict[int, str]:
    """The child processes by id, ended ones that nobody waited for included; multiprocessing's resource tracker is not counted."""
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)  # lives as long as the interpreter, by design
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            for word in (task / "children").read_text().split():
                pid = int(word)
                if pid != tracker:
                    found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Raises AssertionError where the block leaves a thread, a child process, a changed environment or working directory."""
    threads_before, children_before, environment_before, folder_before = threads(), set(children()), environment(), Path.cwd()
    yield
    changed = {name for name, _ in environment_before.items() ^ environment().items()}
    folder = Path.cwd()
    os.chdir(folder_before)
    _gone(lambda: threads() - threads_before, what="threads left")
    _gone(lambda: {pid: name for pid, name in children().items() if pid not in children_before}, what="processes left")
    assert not changed, f"environment changed: {sorted(changed)}"
    assert folder == folder_before, f"working directory changed to {folder}"


@contextlib.contextmanager
def logging_restored() -> Iterator[None]:
    """Afterwards structlog's configuration, and level and handlers of the root logger, are as they were."""
    structlog_before = structlog.get_config() if structlog.is_configured() else None
    root = logging.getLogger()
    level, handlers = root.level, set(root.handlers)
    yield
    structlog.reset_defaults()
    if structlog_before is not None:
        structlog.configure(**structlog_before)
    structlog.contextvars.clear_contextvars()
    root.setLevel(level)
    for handler in set(root.handlers) - handlers:
        if not type(handler).__module__.startswith("_pytest"):  # pytest changes its own from phase to phase
            root.removeHandler(handler)


async def no_task_left() -> None:
    """Raises AssertionError, and cancels them, where tasks of the running loop are open besides the caller's."""
    mine = asyncio.current_task()
    for _ in range(10):  # tasks that are already cancelled, or done in all but name, need a few turns
        await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not mine]
    for task in left:
        task.cancel()
    assert not left, f"tasks left: {left}"


def _gone(left: Callable[[], object], *, what: str) -> None:
    try:
        wait_until(lambda: not left(), timeout_s=GRACE_S, what=what)
    except AssertionError:
        raise AssertionError(f"{what}: {left()}") from None
