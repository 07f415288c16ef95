"""`streamd bench`: what this machine can do, in one table or as JSON."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamd.cli import app
from streamd.cli.bench_options import (
    AS_JSON,
    CLIP,
    CODEC,
    DECODER,
    DEVICE,
    MODEL,
    ONCE,
    SECONDS,
    SIZE,
    STREAMS,
    WORKERS,
    failures,
    frame_rate,
    made_clip,
    parse_decoder,
    parse_device,
    parse_numbers,
    parse_size,
    parse_slo,
    scratch_folder,
    show,
    with_setup,
)

if TYPE_CHECKING:
    from streamd.bench.load import Measured
    from streamd.bench.pipeline import Setup

bench = typer.Typer(
    help="Measure this machine: decoders, preprocessing, the whole pipeline, and how many cameras fit.", no_args_is_help=True
)
app.add_typer(bench, name="bench")


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

    on = parse_device(device)
    processes = min(workers or (4 if on == "cuda" else 1), streams)
    with scratch_folder() as folder:
        path = clip or made_clip(codec, size, folder)
        share = measuring.Share(str(path), streams // processes, min(4, streams // processes), on, False, seconds)
        with failures():
            result = asyncio.run(measuring.measure(share, processes=processes))
    show(result, as_json=as_json)


@bench.command()
def preprocess(size: str = SIZE, device: str = DEVICE, as_json: bool = AS_JSON) -> None:
    """Colour conversion, resize, crop and normalisation: microseconds a frame."""
    from streamd.bench import preprocess as measuring

    width, height = parse_size(size)
    for result in measuring.measure(parse_device(device), width=width, height=height):
        show(result, as_json=as_json)


@bench.command()
def model(
    model: str = MODEL,
    precision: str = typer.Option("auto", "--precision", help="auto, fp16, bf16 or fp32; on a GPU."),
    compile_: bool = typer.Option(False, "--compile", help="With torch.compile; on a GPU."),
    batches: str = typer.Option("1,8,32,64", "--batches", help="Sizes of batches, with commas."),
    seconds: float = typer.Option(2.0, "--seconds", min=0.1, help="How long each measurement lasts."),
    device: str = DEVICE,
    as_json: bool = AS_JSON,
) -> None:
    """The model alone: milliseconds a batch and images a second, as the engine runs it."""
    from streamd.bench import model as measuring
    from streamd.bench import models

    sizes = parse_numbers(batches, example="1,8,32")
    with scratch_folder() as folder, failures():
        config = {**models.of_name(model, folder), "precision": precision, "compile": compile_}
        for result in measuring.measure(config, parse_device(device), batches=sizes, seconds=seconds):
            show(result, as_json=as_json)


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
    decoder: str = DECODER,
    once: bool = ONCE,
    as_json: bool = AS_JSON,
) -> None:
    """End to end, as fast as it goes: every frame decoded, classified, and published to a real Redis."""
    from streamd.bench import pipeline as measuring

    async def run(setup: Setup) -> None:
        measured = await measuring.run(setup, streams, paced=False, seconds=seconds)
        show(measured, as_json=as_json, measured=measured, more={"decoder": decoder})

    once_s = seconds if once or parse_decoder(decoder) == "dali" else None
    with_setup(run, clip=clip, codec=codec, size=size, model=model, workers=workers, device=device, decoder=decoder, once_s=once_s)


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

    promise = parse_slo(slo)

    async def run(setup: Setup) -> None:
        def tell(measured: Measured, met: bool) -> None:
            verdict = "fits" if met else "too many"
            typer.echo(f"{measured.cameras} cameras: {verdict} ({measured.fps} frames/s, p99 {measured.p99_ms} ms)", err=True)

        fps = frame_rate(setup.clip)
        cameras, best = await measuring.capacity(setup, slo=promise, camera_fps=fps, seconds=seconds, start=start, tell=tell)
        if best is None:
            typer.echo("not one camera fits", err=True)
            raise typer.Exit(os.EX_UNAVAILABLE)
        show(best, as_json=as_json, measured=best, more={"capacity_cameras": cameras, "slo": slo})

    with_setup(run, clip=clip, codec=codec, size=size, model=model, workers=workers, device=device)


@bench.command()
def overload(
    cameras: int = typer.Option(..., "--cameras", min=1, help="How many live cameras: more than fit."),
    clip: Path | None = CLIP,
    codec: str = CODEC,
    size: str = SIZE,
    model: str = MODEL,
    seconds: float = SECONDS,
    workers: int | None = WORKERS,
    device: str = DEVICE,
    as_json: bool = AS_JSON,
) -> None:
    """What live cameras get when there are too many of them: how old results are, what is dropped and why, and how evenly."""
    from streamd.bench import pipeline as measuring

    async def run(setup: Setup) -> None:
        measured = await measuring.run(setup, cameras, paced=True, seconds=seconds)
        show(measured, as_json=as_json, measured=measured)

    with_setup(run, clip=clip, codec=codec, size=size, model=model, workers=workers, device=device)


@bench.command()
def growth(
    cameras: str = typer.Option("1,2,4,8", "--cameras", help="Numbers of live cameras, with commas."),
    clip: Path | None = CLIP,
    codec: str = CODEC,
    size: str = SIZE,
    model: str = MODEL,
    seconds: float = SECONDS,
    workers: int | None = WORKERS,
    device: str = DEVICE,
    as_json: bool = AS_JSON,
) -> None:
    """How the cost grows with the number of live cameras: processor time, GPU memory, time to start, latency."""
    from streamd.bench import pipeline as measuring

    numbers = parse_numbers(cameras, example="1,2,4,8")

    async def run(setup: Setup) -> None:
        grown = []
        for number in numbers:
            grown.append(await measuring.run(setup, number, paced=True, seconds=seconds))
            show(grown[-1], as_json=as_json, measured=grown[-1])
        slope = measuring.gpu_mb_per_camera(grown)
        if slope is not None:
            typer.echo(json.dumps({"gpu_mb_per_camera": slope}) if as_json else f"GPU memory of each further camera: {slope} MB")

    with_setup(run, clip=clip, codec=codec, size=size, model=model, workers=workers, device=device)


@bench.command()
def keyframes(
    cameras: int = typer.Option(1500, "--cameras", min=1, help="How many live cameras, of one key frame a second each."),
    seconds: float = SECONDS,
    workers: int | None = WORKERS,
    device: str = DEVICE,
    as_json: bool = AS_JSON,
) -> None:
    """Key frames of very many cameras, of several codecs and sizes; and whether each result was made from its own camera's picture."""
    from streamd import log
    from streamd.bench import keyframes as measuring

    log.configure(level="error", json=False)
    on = parse_device(device)
    with scratch_folder() as folder, failures():
        result = asyncio.run(measuring.measure(cameras, folder=folder, device=on, workers=workers, seconds=seconds))
    show(result, as_json=as_json)
    if not result.is_proof:
        raise typer.Exit(os.EX_SOFTWARE)
