"""`streamd run`: the daemon, in the foreground, until a signal or until every file has ended."""

from __future__ import annotations

import enum
import os
from pathlib import Path

import typer

from streamd.cli import app


class LogLevel(enum.StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.StrEnum):
    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


@app.command()
def run(
    config: Path | None = typer.Option(
        None,
        "--config",
        help="The configuration's folder, or streamd.yaml in it. Otherwise: $STREAMD_CONFIG, ./configs, /etc/streamd.",
        show_default=False,
    ),
    log_level: LogLevel = typer.Option(LogLevel.INFO, "--log-level", help="What is worth a line on standard error."),
    log_format: LogFormat = typer.Option(LogFormat.AUTO, "--log-format", help="auto: console on a terminal, JSON elsewhere."),
) -> None:
    """Classify the frames of all cameras until stopped.

    Exit code 0 after SIGTERM, Ctrl-C or the end of all files; 66 where there is no configuration, or a file cannot be used; 69 where a
    model or the GPU is missing; 70 for an error of streamd's own; 78 for a configuration with problems.
    """
    from streamd.daemon import daemon
    from streamd.errors import ConfigError, ConfigNotFound
    from streamd.redisio import RedisAddressError

    log_json = None if log_format is LogFormat.AUTO else log_format is LogFormat.JSON
    try:
        code = daemon.run(config, log_level=log_level.value, log_json=log_json)
    except ConfigError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(os.EX_NOINPUT if isinstance(error, ConfigNotFound) else os.EX_CONFIG) from None
    except RedisAddressError as error:
        typer.echo(f"redis.url: {error}", err=True)
        raise typer.Exit(os.EX_CONFIG) from None
    raise typer.Exit(code)
