"""What the commands of `streamd bench` share: their options, how these are read, and how results are shown."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from streamd.bench.load import Measured
    from streamd.bench.pipeline import Setup, Slo

CLIP = typer.Option(None, "--clip", help="A video file; without one, 1080p H.264 of 4 Mbit/s is made.", show_default=False)
CODEC = typer.Option("h264", "--codec", help="h264 or hevc, for the clip that is made.")
SIZE = typer.Option("1920x1080", "--size", help="Width and height of the clip that is made.")
MODEL = typer.Option("resnet50", "--model", help="efficientnet-lite0, or a torchvision classification model; its weights may be random.")
SECONDS = typer.Option(10.0, "--seconds", min=1, help="How long each measurement lasts.")
STREAMS = typer.Option(32, "--streams", min=1, help="How many streams run at once.")
WORKERS = typer.Option(None, "--workers", min=1, help="Worker processes; as `engine.workers: auto` otherwise.", show_default=False)
DEVICE = typer.Option("auto", "--device", help="auto, cpu or cuda.")
DECODER = typer.Option("auto", "--decoder", help="auto, nvdec, cpu or dali. dali plays files once.")
ONCE = typer.Option(False, "--once", help="Play a file once, the clip made as long as needed, and not for ever; as dali always does.")
AS_JSON = typer.Option(False, "--json", help="One JSON object.")


def with_setup(
    run: Callable[[Setup], Awaitable[None]],
    *,
    clip: Path | None,
    codec: str,
    size: str,
    model: str,
    workers: int | None,
    device: str,
    decoder: str = "auto",
    once_s: float | None = None,
) -> None:
    """`once_s`: the clip is played once, and is to last while it is measured for so many seconds."""
    from streamd import log
    from streamd.bench import clips, models
    from streamd.bench.pipeline import Setup, once_frames, private_redis

    log.configure(level="error", json=False)
    on = parse_device(device)

    async def main(folder: Path) -> None:
        path = clip or made_clip(codec, size, folder)
        if once_s is not None:
            path = clips.repeated(path, folder, frames=once_frames(once_s))
        async with private_redis(folder) as url:
            setup = Setup(path.absolute(), models.of_name(model, folder), on, workers, url, {}, decoder, once_s is not None)
            await run(setup)

    with scratch_folder() as folder, failures():
        asyncio.run(main(folder))


@contextmanager
def failures() -> Iterator[None]:
    """Errors as a sentence and an exit code."""
    from streamd.demo.photographs import DemoUnavailable
    from streamd.errors import StreamdError

    try:
        yield
    except DemoUnavailable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(os.EX_UNAVAILABLE) from None
    except StreamdError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(os.EX_SOFTWARE) from None


@contextmanager
def scratch_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="streamd-bench-") as folder:
        yield Path(folder)


def made_clip(codec: str, size: str, folder: Path) -> Path:
    from streamd.bench.clips import ClipSpec, make

    width, height = parse_size(size)
    if codec not in {"h264", "hevc"}:
        raise typer.BadParameter("--codec must be h264 or hevc")
    return make(ClipSpec(codec=codec, width=width, height=height), folder)


def parse_size(size: str) -> tuple[int, int]:
    width, _, height = size.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) % 2 == int(height) % 2 == 0 and int(width) and int(height)):
        raise typer.BadParameter(f"{size} is no size; write an even width and height, 1920x1080 say")
    return int(width), int(height)


def parse_numbers(text: str, *, example: str) -> list[int]:
    numbers = [int(number) for number in text.split(",") if number.isdecimal() and int(number)]
    if len(numbers) != len(text.split(",")):
        raise typer.BadParameter(f"{text} is no list of numbers; write {example}")
    return numbers


def parse_decoder(wanted: str) -> str:
    if wanted not in {"auto", "nvdec", "cpu", "dali"}:
        raise typer.BadParameter("--decoder must be auto, nvdec, cpu or dali")
    return wanted


def parse_slo(text: str) -> Slo:
    from streamd.bench.pipeline import Slo

    name, _, limit = text.partition("=")
    number = limit.removesuffix("ms")
    if name not in {"p50", "p99"} or not number.isdecimal():
        raise typer.BadParameter(f"{text} is no promise; write p99=100ms")
    return Slo(percent=float(name[1:]), within_ms=float(number))


def frame_rate(clip: Path) -> float:
    from streamd.sources.file import FileSource

    source = FileSource(clip, loop=False)
    info = source.open()
    source.close()
    return float(info.frame_rate or 25)


def parse_device(wanted: str) -> str:
    from streamd.bench import models

    if wanted not in {"auto", "cpu", "cuda"}:
        raise typer.BadParameter("--device must be auto, cpu or cuda")
    return models.device(wanted)


def show(result: Any, *, as_json: bool, measured: Measured | None = None, more: dict[str, Any] | None = None) -> None:
    from streamd.bench import report

    rows = report.flat(result) | (more or {})
    if getattr(result, "usage", None) is not None:
        rows["limit"] = report.limit(result.usage, measured=measured)
    typer.echo(json.dumps(rows) if as_json else report.table(rows))
