"""`streamd demo`: results within a minute, on a machine without a camera, a GPU, or a Redis."""

from __future__ import annotations

import enum
import os
import signal

import typer

from streamd.cli import app


class Device(enum.StrEnum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


@app.command()
def demo(
    *,
    seconds: float = typer.Option(20.0, min=0, help="How long to go on once every camera has its first result."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a line: results as they stand in Redis, then a summary."),
    device: Device = typer.Option(Device.AUTO, help="auto: the GPU where there is one."),
    cameras: int = typer.Option(3, min=1, max=1000, help="How many."),
) -> None:
    """Make cameras out of photographs, run the daemon on them, and print the results from Redis.

    Exit code 0 where the labels of every camera are true, and after Ctrl-C; 69 where something that the demo needs is not installed; 70
    where labels are wrong or missing.
    """
    # Nothing runs yet that would have to be stopped. Later streamd.demo.run has its own way.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))

    from streamd.demo.photographs import DemoUnavailable
    from streamd.demo.run import DemoFailed, run

    try:
        code = run(seconds=seconds, device=device.value, cameras=cameras, as_json=as_json)
    except DemoUnavailable as error:
        typer.echo(str(error), err=True)
        code = os.EX_UNAVAILABLE
    except DemoFailed as error:
        typer.echo(str(error), err=True)
        code = os.EX_SOFTWARE
    raise typer.Exit(code)
