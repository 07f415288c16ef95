"""The command line. Each command is a module of this package and imports what is heavy inside its function.

`check` runs without torch, av or redis, and `--help` is quick.
"""

from __future__ import annotations

import os

import typer

from streamd import __version__

_TYPER_USAGE_ERROR = 2

app = typer.Typer(
    name="streamd",
    help="Cameras and files in, classification results in Redis out.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"streamd {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
) -> None:
    pass


def main() -> None:
    """Entry point of the `streamd` command. Exit codes follow sysexits, so typer's 2 for a wrong command line becomes 64."""
    try:
        app()
    except SystemExit as leaving:
        if leaving.code == _TYPER_USAGE_ERROR:
            raise SystemExit(os.EX_USAGE) from None
        raise


# Each command is a module that decorates its function with @app.command(); to add one, import it here. At the end, since they import `app`.
from streamd.cli import (  # noqa: E402, F401
    bench,
    check,
    demo,
    probe,
    run,
    schema,
    tail,
)
