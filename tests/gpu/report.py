"""Runs what needs a GPU and keeps what came of it: `python tests/gpu/report.py STEP [OUT.json] [--cameras N] [ARGUMENT…]`.

A step is `tests`, `demo`, or one of STEPS; without OUT.json the result lies in `results/STEP.json`. It says what ran where: the commands,
date, commit and versions, and each outcome. `summary` makes `results/summary.json` of the other files.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("torch", "torchvision", "PyNvVideoCodec", "nvidia-dali-cuda120", "av", "redis", "numpy", "pytest")


def main() -> int:
    """Exit code 0 when everything passed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("tests", "demo", "summary", *STEPS))
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--cameras", type=int, default=150, help="For capacity, growth and overload: about how many fit.")
    parser.add_argument("more", nargs="*", help="Arguments for pytest, or for the step's command.")
    asked = parser.parse_args()
    asked.out = asked.out or RESULTS / f"{asked.what}.json"
    if asked.what == "summary":
        asked.out.write_text(json.dumps(_summary(), indent=1) + "\n")
        return 0
    command = " ".join(["python", "tests/gpu/report.py", *(word for word in sys.argv[1:] if word != str(asked.out))])
    about = {"command": command, **_environment()}
    asked.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(result: dict[str, Any]) -> None:
        asked.out.write_text(json.dumps(about | result, indent=1) + "\n")

    if asked.what in STEPS:
        result = _step(asked.what, cameras=asked.cameras, more=asked.more, keep=keep)
    else:
        result = _tests(asked.more) if asked.what == "tests" else _demo()
    keep(result)
    return 0 if result["is_good"] else 1


def _environment() -> dict[str, Any]:
    import torch

    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": os.environ.get("STREAMD_COMMIT") or _output("git", "rev-parse", "HEAD"),
        "device": torch.cuda.get_device_name(0),
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _tests(arguments: list[str]) -> dict[str, Any]:
    """Run the tests that are marked `gpu`."""
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder, "junit.xml")
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", f"--junitxml={junit}", *(arguments or ["tests"])]
        subprocess.run(command, cwd=ROOT, check=False)
        cases = list(ET.parse(junit).iter("testcase")) if junit.exists() else []
    outcomes: dict[str, list[str]] = {"passed": [], "skipped": [], "failures": []}
    for case in cases:
        kinds = {child.tag for child in case}
        name = f"{case.get('classname')}::{case.get('name')}"
        outcome = "failures" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        outcomes[outcome].append(name)
    return {
        "is_good": bool(outcomes["passed"]) and not outcomes["failures"],
        "passed": len(outcomes["passed"]),
        "skipped": sorted(outcomes["skipped"]),
        "failures": sorted(outcomes["failures"]),
        "passed_tests": sorted(outcomes["passed"]),
    }


def _demo() -> dict[str, Any]:
    """The labels that the demo's cameras got on the GPU, read from Redis."""
    command = [sys.executable, "-m", "streamd", "demo", "--device", "cuda", "--json", "--seconds", "5"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=180)
    labels: dict[str, Counter[str]] = {}
    latency: dict[str, list[float]] = {}
    for line in ran.stdout.splitlines():
        record = json.loads(line)
        if record.get("type", "result") == "result" and record.get("labels"):
            labels.setdefault(record["camera"], Counter())[record["labels"][0]["label"]] += 1
            latency.setdefault(record["camera"], []).append(record["latency_ms"]["total"])
    return {
        "is_good": ran.returncode == 0,
        "exit_code": ran.returncode,
        "labels": {camera: dict(counts.most_common(3)) for camera, counts in labels.items()},
        "p50_latency_ms": {camera: sorted(values)[len(values) // 2] for camera, values in latency.items()},
        "said": ran.stderr.splitlines()[-25:],
    }


STREAMD_BENCH = (sys.executable, "-m", "streamd", "bench")
STEPS: dict[str, dict[str, tuple[str, ...]]] = {
    "ceilings": {
        "preprocess_1080p": (*STREAMD_BENCH, "preprocess", "--json"),
        "decode_h264": (*STREAMD_BENCH, "decode", "--seconds", "4", "--json"),
        "pipeline_h264": (*STREAMD_BENCH, "pipeline", "--seconds", "6", "--json"),
        "decode_hevc": (*STREAMD_BENCH, "decode", "--codec", "hevc", "--seconds", "4", "--json"),
        "pipeline_hevc": (*STREAMD_BENCH, "pipeline", "--codec", "hevc", "--seconds", "6", "--json"),
    },
    "capacity": {"capacity": (*STREAMD_BENCH, "capacity", "--slo", "p99=60ms", "--start", "{cameras}", "--seconds", "5", "--json")},
    "growth": {"growth": (*STREAMD_BENCH, "growth", "--cameras", "1,2,4,8,16,32,84,{cameras}", "--seconds", "5", "--json")},
    "overload": {"overload": (*STREAMD_BENCH, "overload", "--cameras", "{twice}", "--seconds", "15", "--json")},
    "keyframes": {"keyframes": (*STREAMD_BENCH, "keyframes", "--cameras", "1500", "--seconds", "10", "--json")},
    "rtsp": {"rtsp": (sys.executable, "tests/gpu/rtsp.py", "--cameras", "64")},
    "agreement": {"agreement": (sys.executable, "tests/gpu/agreement.py")},
    "dali": {
        "nvdec": (*STREAMD_BENCH, "pipeline", "--decoder", "nvdec", "--once", "--seconds", "6", "--json"),
        "dali": (*STREAMD_BENCH, "pipeline", "--decoder", "dali", "--seconds", "6", "--json"),
    },
    "comparisons": {"comparisons": (sys.executable, "tests/bench/comparisons/run.py", os.devnull)},
}
"""What `make bench-gpu` runs, each step in less than 10 minutes. `{cameras}` is how many 1080p30 cameras the decoders could take."""
STEP_TIMEOUT_S = 590


def _step(name: str, *, cameras: int, more: list[str], keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The commands of a step one after the other on the same machine: only their ratios mean something elsewhere. After each of them
    `keep` is given what there is.
    """
    measured: dict[str, Any] = {}
    for key, command in STEPS[name].items():
        keep({"is_good": False, **measured})
        words = [word.format(cameras=cameras, twice=2 * cameras) for word in (*command, *more)]
        ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=STEP_TIMEOUT_S)
        lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        measured[key] = {"command": " ".join(["python", *words[1:]]), "exit_code": ran.returncode, "results": lines}
        if ran.returncode or not lines:
            measured[key]["said"] = ran.stderr.splitlines()[-15:]
        else:
            measured[key]["told"] = [line for line in ran.stderr.splitlines() if " cameras: " in line]
    return {"is_good": all(result["exit_code"] == 0 and result["results"] for result in measured.values()), **measured}


def summarize(steps: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The newest figures of all steps as one flat object; None for what has not run."""

    def value(step: str, key: str, name: str, **wanted: Any) -> Any:
        results = steps.get(step, {}).get(key, {}).get("results", [])
        return next((row[name] for row in results if name in row and all(row.get(key) == want for key, want in wanted.items())), None)

    def share(codec: str) -> float | None:
        ceiling, whole = value("ceilings", f"decode_{codec}", "fps"), value("ceilings", f"pipeline_{codec}", "fps")
        return round(whole / ceiling, 3) if ceiling and whole else None

    newest = max(steps.values(), key=lambda step: str(step.get("date")), default={})
    return {
        "device": newest.get("device"),
        "date": newest.get("date"),
        "commit": newest.get("commit"),
        "pipeline_over_decode_h264": share("h264"),
        "pipeline_over_decode_hevc": share("hevc"),
        "cpu_ms_per_frame": value("ceilings", "pipeline_h264", "cpu_ms_per_frame"),
        "gpu_mb_per_camera": value("growth", "growth", "gpu_mb_per_camera"),
        "capacity_cameras_1080p30": value("capacity", "capacity", "capacity_cameras"),
        "capacity_p99_ms": value("capacity", "capacity", "p99_ms"),
        "half_load_p50_ms": value("growth", "growth", "p50_ms", cameras=84),
        "half_load_p99_ms": value("growth", "growth", "p99_ms", cameras=84),
        "overload_p99_ms": value("overload", "overload", "p99_ms"),
        "overload_jain": value("overload", "overload", "jain"),
        "rtsp_cameras": value("rtsp", "rtsp", "rtsp_cameras"),
        "rtsp_lost_packets": value("rtsp", "rtsp", "rtsp_lost_packets"),
        "keyframe_cameras": value("keyframes", "keyframes", "cameras"),
        "fused_kernel_us": value("ceilings", "preprocess_1080p", "device_us", implementation="fused", frames_per_launch=32),
        "top1_agreement": value("agreement", "agreement", "top1_agreement"),
        "over_opencv_loop": value("comparisons", "comparisons", "over_opencv_loop"),
        "over_dali_reader": value("comparisons", "comparisons", "over_dali_reader"),
        "article_over_cpu": value("comparisons", "comparisons", "article_over_cpu"),
    }


def _summary() -> dict[str, Any]:
    """Of the steps whose files lie in `results/`."""
    files = {name: RESULTS / f"{name}.json" for name in STEPS}
    return summarize({name: json.loads(path.read_text()) for name, path in files.items() if path.exists()})


if __name__ == "__main__":
    sys.exit(main())
