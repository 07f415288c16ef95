"""`streamd check`: says what is wrong with a configuration, without starting anything. Imports neither torch, av nor redis."""

from __future__ import annotations

import enum
import json
import os
from pathlib import Path

import typer

from streamd.cli import app


class Format(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


@app.command()
def check(
    path: Path | None = typer.Argument(
        None,
        help="The configuration's folder, or streamd.yaml in it. Otherwise: $STREAMD_CONFIG, ./configs, /etc/streamd.",
        show_default=False,
    ),
    output: Format = typer.Option(Format.TEXT, "--format", help="text: one line a problem, file:line:column: key: message."),
) -> None:
    """Check the configuration and the files it names.

    Exit code 0 without problems, 78 with problems, 66 where there is no configuration.
    """
    from streamd.config import find, load
    from streamd.errors import ConfigError, ConfigNotFound

    try:
        main = find(path)
        config = load(main, require_files=True)
    except ConfigError as error:
        if output is Format.JSON:
            problems = [{"file": p.file, "line": p.line, "column": p.column, "path": p.path, "message": p.message} for p in error.problems]
            typer.echo(json.dumps({"problems": problems}, indent=2))
        else:
            typer.echo(str(error))
        raise typer.Exit(os.EX_NOINPUT if isinstance(error, ConfigNotFound) else os.EX_CONFIG) from None
    if output is Format.JSON:
        typer.echo(json.dumps({"cameras": list(config.cameras), "models": list(config.models), "problems": []}, indent=2))
    else:
        typer.echo(f"{main.parent}: {_count(len(config.cameras), 'camera')}, {_count(len(config.models), 'model')}: no problems")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
