"""Waiting for a fact with a deadline, for tests: the only way here to wait for something that happens elsewhere."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
POLL_S = 0.01


def wait_until(predicate: Callable[[], T], *, timeout_s: float = 10.0, what: str) -> T:
    """Call `predicate` until what it returns is true, and return that.

    Raises AssertionError with `what` and the last value after `timeout_s`. What `predicate` raises passes through.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what} (last seen: {value!r})")
        time.sleep(POLL_S)


async def wait_until_async(predicate: Callable[[], T | Awaitable[T]], *, timeout_s: float = 10.0, what: str) -> T:
    """As `wait_until`, on the event loop; `predicate` may be a plain function or return an awaitable."""
    deadline = time.monotonic() + timeout_s
    while True:
        value: Any = predicate()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value  # type: ignore[no-any-return]
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what} (last seen: {value!r})")
        await asyncio.sleep(POLL_S)
