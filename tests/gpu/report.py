"""Runs what needs a GPU and keeps what came of it: `python tests/gpu/report.py tests|demo|bench OUT.json [PYTEST_ARGUMENT…]`.

OUT.json says what ran where: the command, date, commit, versions; and each test's outcome, the labels of `streamd demo --device cuda`, or
what `streamd bench` measured, all in one run.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "torchvision", "PyNvVideoCodec", "av", "redis", "numpy", "pytest")


def main() -> int:
    """Exit code 0 when everything passed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("tests", "demo", "bench"))
    parser.add_argument("out", type=Path)
    parser.add_argument("pytest_arguments", nargs="*")
    asked = parser.parse_args()
    result = {"tests": lambda: _tests(asked.pytest_arguments), "demo": _demo, "bench": _bench}[asked.what]()
    report = {"command": " ".join(["python", "tests/gpu/report.py", *sys.argv[1:]]), **_environment(), **result}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if report["is_good"] else 1


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


BENCHMARKS = {
    "preprocess_1080p": "preprocess",
    "decode_h264": "decode --seconds 4",
    "pipeline_h264": "pipeline --seconds 6",
    "decode_hevc": "decode --codec hevc --seconds 4",
    "pipeline_hevc": "pipeline --codec hevc --seconds 6",
}


def _bench() -> dict[str, Any]:
    """The ceilings and the whole pipeline, one after the other on the same machine: only their ratios mean something elsewhere."""
    measured: dict[str, Any] = {}
    for name, arguments in BENCHMARKS.items():
        command = [sys.executable, "-m", "streamd", "bench", *arguments.split(), "--json"]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=180)
        lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        measured[name] = {"command": f"streamd bench {arguments} --json", "exit_code": ran.returncode, "results": lines}
        if ran.returncode:
            measured[name]["said"] = ran.stderr.splitlines()[-15:]
    for codec in ("h264", "hevc"):
        ceiling, whole = measured[f"decode_{codec}"]["results"], measured[f"pipeline_{codec}"]["results"]
        if ceiling and whole:
            measured[f"pipeline_over_decode_{codec}"] = round(whole[0]["fps"] / ceiling[0]["fps"], 3)
    return {"is_good": all(result["exit_code"] == 0 for result in measured.values() if isinstance(result, dict)), **measured}


if __name__ == "__main__":
    sys.exit(main())
