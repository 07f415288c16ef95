"""`streamd tail`: prints results, or events, as they arrive in Redis."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from streamd.cli import app

if TYPE_CHECKING:
    from rich.text import Text

    from streamd.client import Client
    from streamd.records import Event, Result

_DEFAULT_URL = "redis://127.0.0.1:6379/0"
_LABELS = 3
_KIND_STYLES = {"up": "green", "ended": "green", "down": "yellow", "refused": "red", "failed": "red", "worker_died": "red"}


@app.command()
def tail(
    cameras: list[str] | None = typer.Argument(None, metavar="CAMERA", help="Only these; otherwise all.", show_default=False),
    *,
    events: bool = typer.Option(False, "--events", help="What happens to the cameras (up, down, refused, …) instead of results."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a line, as `streamd schema` describes them, with their `type`."),
    count: int | None = typer.Option(None, "--count", "-n", min=1, help="Stop after so many.", show_default=False),
    from_start: bool = typer.Option(False, "--from-start", help="Begin with the oldest that Redis still holds, not with new ones."),
    redis_url: str | None = typer.Option(
        None,
        "--redis-url",
        help=f"Where Redis is. Otherwise: $STREAMD_REDIS_URL, the configuration, {_DEFAULT_URL}.",
        show_default=False,
    ),
    config: Path | None = typer.Option(
        None,
        "--config",
        help="The configuration's folder, or streamd.yaml in it. Otherwise: $STREAMD_CONFIG, ./configs, /etc/streamd.",
        show_default=False,
    ),
    prefix: str | None = typer.Option(
        None, "--prefix", help="Start of every key. Otherwise the configuration's, or streamd.", show_default=False
    ),
) -> None:
    """Print results as they arrive in Redis, until Ctrl-C.

    Exit code 0 after `--count` results or Ctrl-C, 69 where Redis cannot be reached; 66 and 78 where the configuration is missing or wrong.
    """
    from streamd import log
    from streamd.client import Client
    from streamd.errors import ConfigError, ConfigNotFound
    from streamd.redisio import RedisAddressError, RedisUnavailable

    log.configure(level="warning", json=False)
    try:
        client = Client(**_where(redis_url, config=config, prefix=prefix))
        asyncio.run(_tail(client, cameras or [], events=events, as_json=as_json, count=count, from_=_from(from_start=from_start)))
    except ConfigError as error:
        typer.echo(f"{error}\nGive --redis-url to do without the configuration.", err=True)
        raise typer.Exit(os.EX_NOINPUT if isinstance(error, ConfigNotFound) else os.EX_CONFIG) from None
    except RedisAddressError as error:
        typer.echo(f"{error}", err=True)
        raise typer.Exit(os.EX_USAGE) from None
    except RedisUnavailable as error:
        typer.echo(f"Redis cannot be read: {error}", err=True)
        raise typer.Exit(os.EX_UNAVAILABLE) from None
    except BrokenPipeError:  # the reader, `head` say, has enough; Python would complain while it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        pass


def _from(*, from_start: bool) -> str:
    return "0" if from_start else "$"


def _where(redis_url: str | None, *, config: Path | None, prefix: str | None) -> dict[str, Any]:
    """The arguments of Client. The configuration is read only where it is named, or nothing else says where Redis is."""
    from streamd.config import load
    from streamd.errors import ConfigError, ConfigNotFound, Problem

    named = redis_url or os.environ.get("STREAMD_REDIS_URL")
    found: dict[str, Any] = {"url": _DEFAULT_URL, "prefix": "streamd"}
    if config is not None or named is None:
        try:
            loaded = load(config)
        except ConfigNotFound:
            if config is not None:
                raise
        else:
            if loaded.redis is None and named is None:
                raise ConfigError(Problem("redis", "is null in the configuration: its results are not in Redis"))
            if loaded.redis is not None:
                redis = loaded.redis
                password = redis.password.get_secret_value() if redis.password else None
                found = {"url": redis.url, "prefix": redis.prefix, "username": redis.username, "password": password}
    if named is not None:
        found = {"url": named, "prefix": found["prefix"]}
    if prefix is not None:
        found["prefix"] = prefix
    return found


async def _tail(client: Client, cameras: list[str], *, events: bool, as_json: bool, count: int | None, from_: str) -> None:
    hint = _hint(set(await client.cameras()), cameras)
    if hint:
        typer.echo(hint, err=True)
    show = _show_json if as_json else _line_printer()
    left = count
    async with contextlib.aclosing(_records(client, cameras, events=events, from_=from_)) as records:
        async for record in records:
            show(record)
            if left is not None:
                left -= 1
                if not left:
                    return


def _hint(known: set[str], wanted: list[str]) -> str | None:
    """What to say before waiting, maybe for ever, for something that is not there."""
    if not known:
        return "No daemon has written here yet; waiting. If one has, give its --redis-url and --prefix."
    missing = [camera for camera in wanted if camera not in known]
    return f"Not among the cameras yet: {', '.join(missing)} (there are {', '.join(sorted(known))}); waiting." if missing else None


async def _records(client: Client, cameras: list[str], *, events: bool, from_: str) -> AsyncGenerator[Result | Event, None]:
    if not events:
        async with contextlib.aclosing(client.results(*cameras, from_=from_)) as results:
            async for result in results:
                yield result.record
        return
    async with contextlib.aclosing(client.events(from_=from_)) as happened:
        async for event in happened:
            if not cameras or event.record.camera in cameras:
                yield event.record


def _show_json(record: Result | Event) -> None:
    from streamd.sinks.payload import line

    sys.stdout.buffer.write(line(record))
    sys.stdout.buffer.flush()


def _line_printer() -> Callable[[Result | Event], None]:
    from rich.console import Console

    from streamd.records import Event

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def show(record: Result | Event) -> None:
        # Not printed by rich itself, which ends the program with 1 where the reader of a pipe has enough.
        with console.capture() as capture:
            console.print(_event_text(record) if isinstance(record, Event) else _result_text(record))
        sys.stdout.write(capture.get())
        sys.stdout.flush()

    return show


def _result_text(result: Result) -> Text:
    text = _head(result.captured_ms, result.camera)
    if not result.labels:
        text.append("no confident label", "dim")
    for number, label in enumerate(result.labels[:_LABELS]):
        style = "bold" if number == 0 else "dim"
        text.append("" if number == 0 else ", ", "dim").append(_printable(label.label), style).append(f" {label.score:.2f}", style)
    text.append(f"  {result.latency_ms.total:.0f} ms", "cyan")
    if result.dropped:
        text.append(f"  {result.dropped} dropped before it", "yellow")
    return text


def _event_text(event: Event) -> Text:
    text = _head(event.at_ms, event.camera or "-").append(event.kind.value, _KIND_STYLES.get(event.kind.value, ""))
    if event.reason:
        text.append(f"  {_printable(event.reason)}")
    if event.detail:
        text.append(f"  {_printable(event.detail)}", "dim")
    return text


def _head(unix_ms: int, camera: str) -> Text:
    from rich.text import Text

    at = datetime.fromtimestamp(unix_ms / 1000).astimezone()
    return Text().append(f"{at:%H:%M:%S}.{unix_ms % 1000:03d}  ", "dim").append(f"{_printable(camera):<12}  ", "magenta")


def _printable(text: str) -> str:
    """Without what would steer a terminal: parts of it come from cameras."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
