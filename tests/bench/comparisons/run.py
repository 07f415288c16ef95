"""streamd beside what people use instead, all on one machine in one run: `python tests/bench/comparisons/run.py OUT.json [--only a,b]`.

Each row is a file beside this one, runs in a process of its own, and classifies every frame of the same 1080p clip with ResNet-50 at
224x224. What is not installed is skipped and says so. The ratios are streamd's frames a second over theirs; `article_over_cpu` is the
article's first way over streamd's, in milliseconds a batch. Standard output gets the same as one line of JSON.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT)]

from task import Result, Task, Unavailable  # noqa: E402 - found through what the line above adds

ROWS = ("opencv_loop", "pyav_batches", "inference_pipeline", "dali_reader", "threaded_decoder", "torchcodec_decoder", "article", "streamd")
PACKAGES = (
    "torch",
    "torchvision",
    "av",
    "opencv-python-headless",
    "pillow",
    "nvidia-dali-cuda120",
    "PyNvVideoCodec",
    "torchcodec",
    "streamvision",
)
TIMEOUT_S = 90
CLIP_S = 240
"""Longer than any row plays one file: a decoder of 1080p gives about 760 frames a second, for less than 10 s."""


def main() -> int:
    """Exit code 0 when every row that can run here did."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", type=lambda names: names.split(","), default=ROWS, help="Names of rows, with commas.")
    parser.add_argument("--clip", type=Path, help="A video file; without one, streamd's own clip is made.")
    parser.add_argument("--seconds", type=float, default=4.0, help="How long each setting is measured.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="1920x1080", help="Of the clip that is made, and of the article's frames.")
    parser.add_argument(
        "--quick", action="store_true", help="Tiny batches, a small model, no warm-up: to test the programs, no measurement."
    )
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.row:
        print(json.dumps(figures(asked.row, Task(**json.loads(asked.out.read_text())))), flush=True)
        os._exit(0)  # threads may be in native code, and not all libraries end well there
    if unknown := set(asked.only) - set(ROWS):
        parser.error(f"{', '.join(sorted(unknown))}: no such row; there are {', '.join(ROWS)}")
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        result = compare(asked, Path(folder))
    asked.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 0 if result["is_good"] else 1


def compare(asked: argparse.Namespace, folder: Path) -> Result:
    """All rows, one after the other in this order, and their ratios."""
    width, height = map(int, asked.size.split("x"))
    clip = asked.clip or made(width, height, folder)
    task = Task(clip=str(folder / "long.mp4"), device=asked.device, width=width, height=height, seconds=asked.seconds)
    if asked.quick:
        task = replace(task, model="resnet18", warm_up_s=0, threads=2, workers=1, batch=1, rounds=1)
    repeat(clip, Path(task.clip), seconds=10 if asked.quick else CLIP_S)
    (folder / "task.json").write_text(json.dumps(asdict(task)))
    found = {}
    for row in (row for row in ROWS if row in asked.only):
        began_s = time.monotonic()
        found[row] = in_process(row, clip, folder / "task.json", task)
        found[row]["took_s"] = round(time.monotonic() - began_s, 1)
        print(f"{row}: {json.dumps(found[row])}", file=sys.stderr, flush=True)
    return {
        **ratios(found),
        "is_good": not any(key.endswith("failed") for row in found.values() for key in row),
        "rows": found,
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := installed(name))},
    }


def made(width: int, height: int, folder: Path) -> Path:
    from streamd.bench.clips import ClipSpec, make

    return make(ClipSpec(width=width, height=height), folder)


def repeat(clip: Path, path: Path, *, seconds: float) -> None:
    """Write the clip's pictures again and again, as they are encoded, until there are `seconds` of them."""
    import av

    with av.open(str(clip)) as source, av.open(str(path), "w") as target:
        stream = source.streams.video[0]
        assert stream.time_base is not None
        out = target.add_stream_from_template(stream)
        shift = end = 0
        while end * stream.time_base < seconds:
            for packet in source.demux(stream):
                if packet.pts is not None and packet.dts is not None:
                    packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                    end = max(end, packet.pts + (packet.duration or 0))
                    packet.stream = out
                    target.mux(packet)
            source.seek(0)
            shift = end


def in_process(row: str, clip: Path, task_file: Path, task: Task) -> Result:
    """What a row gave: its figures, or `skipped` or `failed` with the reason."""
    if row == "streamd":
        options = {"--clip": clip.absolute(), "--seconds": max(1.0, task.seconds), "--device": task.device}
        options |= {"--model": task.model}
        words = ["-m", "streamd", "bench", "pipeline", "--json", *(str(word) for option in options.items() for word in option)]
    else:
        words = [str(HERE / "run.py"), "--row", row, str(task_file)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    try:
        ran = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {TIMEOUT_S} s"}
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode or not lines:
        return {"failed": ran.stderr.splitlines()[-8:] or f"exit code {ran.returncode}"}
    return dict(json.loads(lines[-1]))


def figures(row: str, task: Task) -> Result:
    """Measure a row in this process; or why it cannot run here."""
    try:
        program: Any = importlib.import_module(row)
    except Exception as error:  # noqa: BLE001 - libraries for a GPU raise what they like where there is none
        return {"skipped": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    try:
        return dict(program.measure(task))
    except Unavailable as error:
        return {"skipped": str(error)}


def ratios(found: dict[str, Result]) -> dict[str, float | None]:
    """None for what did not run."""
    ours = found.get("streamd", {}).get("fps")
    theirs = {row: found.get(row, {}).get("fps") for row in ROWS if row not in {"streamd", "article"}}
    return {
        **{f"over_{row}": round(ours / fps, 2) if ours and fps else None for row, fps in theirs.items()},
        "article_over_cpu": found.get("article", {}).get("article_over_cpu"),
    }


def installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
