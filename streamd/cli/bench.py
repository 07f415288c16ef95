"""`streamd bench`: what this machine can do, in one table or as JSON."""

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

from streamd.cli import app

if TYPE_CHECKING:
    from streamd.bench.load import Measured
    from streamd.bench.pipeline import Setup, Slo

bench = typer.Typer(
    help="Measure this machine: decoders, preprocessing, the whole pipeline, and how many cameras fit.", no_args_is_help=True
)
app.add_typer(bench, name="bench")

CLIP = typer.Option(None, "--clip", help="A video file; without one, 1080p H.264 of 4 Mbit/s is made.", show_default=False)
CODEC = typer.Option("h264", "--codec", help="h264 or hevc, for the clip that is made.")
SIZE = typer.Option("1920x1080", "--size", help="Width and height of the clip that is made.")
MODEL = typer.Option("resnet50", "--model", help="efficientnet-lite0, or a torchvision classification model; its weights may be random.")
SECONDS = typer.Option(10.0, "--seconds", min=1, help="How long each measurement lasts.")
STREAMS = typer.Option(32, "--streams", min=1, help="How many streams run at once.")
WORKERS = typer.Option(None, "--workers", min=1, help="Worker processes; as `engine.workers: auto` otherwise.", show_default=False)
DEVICE = typer.Option("auto", "--device", help="auto, cpu or cuda.")
AS_JSON = typer.Option(False, "--json", help="One JSON object.")


@bench.command()
def decode(
    clip: Path | None = CLIP,
    codec: str = CODEC,
    size: str = SIZE,
    seconds: float = SECONDS,
    streams: int = STREAMS,
    workers: int | None = WORKERS,
    device: str = DEVICE,
    as_json: bool = AS_JSON,
) -> None:
    """The raw ceiling: packets in memory to surfaces, and nothing else."""
    from streamd.bench import decode as measuring

    on = _device(device)
    processes = min(workers or (4 if on == "cuda" else 1), streams)
    with _folder() as folder:
        path = clip or _made(codec, size, folder)
        share = measuring.Share(str(path), streams // processes, min(4, streams // processes), on, False, seconds)
        with _failures():
            result = asyncio.run(measuring.measure(share, processes=processes))
    _print(result, as_json=as_json)


@bench.command()
def preprocess(size: str = SIZE, device: str = DEVICE, as_json: bool = AS_JSON) -> None:
    """Colour conversion, resize, crop and normalisation: microseconds a frame."""
    from streamd.bench import preprocess as measuring

    width, height = _size(size)
    for result in measuring.measure(_device(device), width=width, height=height):
        _print(result, as_json=as_json)


@bench.command()
def pipeline(
    clip: Path | None = CLIP,
    codec: str = CODEC,
    size: str = SIZE,
    model: str = MODEL,
    seconds: float = SECONDS,
    streams: int = STREAMS,
    workers: int | None = WORKERS,
    device: str = DEVICE,
    as_json: bool = AS_JSON,
) -> None:
    """End to end, as fast as it goes: every frame decoded, classified, and published to a real Redis."""
    from streamd.bench import pipeline as measuring

    async def run(setup: Setup) -> None:
        measured = await measuring.run(setup, streams, paced=False, seconds=seconds)
        _print(measured, as_json=as_json, measured=measured)

    _with_setup(run, clip=clip, codec=codec, size=size, model=model, workers=workers, device=device)


@bench.command()
def capacity(
    clip: Path | None = CLIP,
    codec: str = CODEC,
    size: str = SIZE,
    model: str = MODEL,
    seconds: float = SECONDS,
    start: int = typer.Option(8, "--start", min=1, help="Number of cameras to begin with."),
    slo: str = typer.Option("p99=100ms", "--slo", help="What a camera is promised, beside no drops: p50 or p99, and milliseconds."),
    workers: int | None = WORKERS,
    device: str = DEVICE,
    as_json: bool = AS_JSON,
) -> None:
    """How many live cameras fit: the most that keep their frame rate without a drop, within the latency that is promised."""
    from streamd.bench import pipeline as measuring

    promise = _slo(slo)

    async def run(setup: Setup) -> None:
        def tell(measured: Measured, met: bool) -> None:
            verdict = "fits" if met else "too many"
            typer.echo(f"{measured.cameras} cameras: {verdict} ({measured.fps} frames/s, p99 {measured.p99_ms} ms)", err=True)

        fps = _frame_rate(setup.clip)
        cameras, best = await measuring.capacity(setup, slo=promise, camera_fps=fps, seconds=seconds, start=start, tell=tell)
        if best is None:
            typer.echo("not one camera fits", err=True)
            raise typer.Exit(os.EX_UNAVAILABLE)
        _print(best, as_json=as_json, measured=best, more={"capacity_cameras": cameras, "slo": slo})

    _with_setup(run, clip=clip, codec=codec, size=size, model=model, workers=workers, device=device)


def _with_setup(
    run: Callable[[Setup], Awaitable[None]], *, clip: Path | None, codec: str, size: str, model: str, workers: int | None, device: str
) -> None:
    from streamd import log
    from streamd.bench import models
    from streamd.bench.pipeline import Setup, private_redis

    log.configure(level="error", json=False)
    on = _device(device)

    async def main(folder: Path) -> None:
        path = clip or _made(codec, size, folder)
        async with private_redis(folder) as url:
            setup = Setup(path.absolute(), models.of_name(model, folder), on, workers, url, {})
            await run(setup)

    with _folder() as folder, _failures():
        asyncio.run(main(folder))


@contextmanager
def _failures() -> Iterator[None]:
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
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="streamd-bench-") as folder:
        yield Path(folder)


def _made(codec: str, size: str, folder: Path) -> Path:
    from streamd.bench.clips import ClipSpec, make

    width, height = _size(size)
    if codec not in {"h264", "hevc"}:
        raise typer.BadParameter("--codec must be h264 or hevc")
    return make(ClipSpec(codec=codec, width=width, height=height), folder)


def _size(size: str) -> tuple[int, int]:
    width, _, height = size.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) % 2 == int(height) % 2 == 0 and int(width) and int(height)):
        raise typer.BadParameter(f"{size} is no size; write an even width and height, 1920x1080 say")
    return int(width), int(height)


def _slo(text: str) -> Slo:
    from streamd.bench.pipeline import Slo

    name, _, limit = text.partition("=")
    number = limit.removesuffix("ms")
    if name not in {"p50", "p99"} or not number.isdecimal():
        raise typer.BadParameter(f"{text} is no promise; write p99=100ms")
    return Slo(percent=float(name[1:]), within_ms=float(number))


def _frame_rate(clip: Path) -> float:
    from streamd.sources.file import FileSource

    source = FileSource(clip, loop=False)
    info = source.open()
    source.close()
    return float(info.frame_rate or 25)


def _device(wanted: str) -> str:
    from streamd.bench import models

    if wanted not in {"auto", "cpu", "cuda"}:
        raise typer.BadParameter("--device must be auto, cpu or cuda")
    return models.device(wanted)


def _print(result: Any, *, as_json: bool, measured: Measured | None = None, more: dict[str, Any] | None = None) -> None:
    from streamd.bench import report

    rows = report.flat(result) | (more or {})
    if getattr(result, "usage", None) is not None:
        rows["limit"] = report.limit(result.usage, measured=measured)
    typer.echo(json.dumps(rows) if as_json else report.table(rows))
