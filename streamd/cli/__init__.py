"""The command line. Each command is a module of this package and imports what is heavy inside its function: `check` runs without torch, av or redis."""

from __future__ import annotations

import typer

from streamd import __version__

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
    """Entry point of the `streamd` command."""
    app()
