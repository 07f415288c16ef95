"""The pinned requirements: `lock` writes requirements/*.txt with uv, `check` compares them with pyproject.toml without a network."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

FOLDER = Path("requirements")
CONSTRAINTS = FOLDER / "constraints.txt"
EXTRAS = {
    "cpu": ("uvloop",),
    "gpu": ("uvloop", "gpu"),
    "dali": ("uvloop", "gpu", "dali"),
    "dev": ("uvloop", "demo", "dev"),
}
"""The files that pin the package's dependencies, and with which extras. build.txt pins what builds the package."""
PYTHONS = ("3.11", "3.12", "3.13")


def asked_for(project: dict[str, Any]) -> dict[str, list[str]]:
    """The requirements that each file has to pin."""
    extras = project["project"]["optional-dependencies"]
    files = {name: sum((extras[extra] for extra in chosen), project["project"]["dependencies"]) for name, chosen in EXTRAS.items()}
    return files | {"build": project["build-system"]["requires"]}


def lock(*, files: dict[str, list[str]], upgrade: bool) -> None:
    """Pin every file again, keeping the versions that still fit unless asked to upgrade."""
    with tempfile.TemporaryDirectory() as scratch:
        uv = shutil.which("uv")
        if uv is None:
            print("uv is not on PATH: installing it into a throw-away environment", file=sys.stderr)
            venv.create(scratch, with_pip=True)
            uv = f"{scratch}/bin/uv"
            subprocess.run([f"{scratch}/bin/python", "-m", "pip", "install", "--quiet", "uv"], check=True)
        compile_ = [uv, "pip", "compile", "-", "--universal", "--python-version", PYTHONS[0], "--generate-hashes", "--quiet"]
        compile_ += ["--no-emit-index-url", "--no-header", "--no-annotate", "--constraints", str(CONSTRAINTS)]
        compile_ += ["--upgrade"] if upgrade else []
        for name, requirements in files.items():
            subprocess.run([*compile_, "--output-file", f"{FOLDER}/{name}.txt"], input="\n".join(requirements), text=True, check=True)


def pinned(path: Path, python: str) -> dict[str, str]:
    """Versions by package that a file pins on Linux for one minor version of Python."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    machine = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}
    machine |= {"implementation_name": "cpython", "python_version": python, "python_full_version": f"{python}.9"}
    pins = [Requirement(line.rstrip(" \\")) for line in path.read_text().splitlines() if re.match(r"[A-Za-z0-9]", line)]
    applies = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(machine)]
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in applies}


def problems(*, files: dict[str, list[str]], python: str) -> list[str]:
    """What is wrong with the pins, one sentence each."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found = []
    versions: dict[str, set[str]] = {}
    for name, requirements in files.items():
        path = FOLDER / f"{name}.txt"
        pins = pinned(path, python)
        for wanted in map(Requirement, requirements):
            version = pins.get(canonicalize_name(wanted.name))
            if version is None:
                found.append(f"{path}: {wanted.name} is not pinned for Python {python}")
                continue
            versions.setdefault(wanted.name, set()).add(version)
            if not wanted.specifier.contains(version, prereleases=True):
                found.append(f"{path}: {wanted.name}=={version} for Python {python} is not in pyproject.toml's {wanted.specifier}")
    for package, several in versions.items():
        if len(several) > 1:
            found.append(f"{FOLDER}: {package} is pinned at {' and '.join(sorted(several))} for Python {python}: the files disagree")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["lock", "check"])
    parser.add_argument("--upgrade", action="store_true", help="lock: take the newest versions that fit")
    options = parser.parse_args()
    files = asked_for(tomllib.loads(Path("pyproject.toml").read_text()))
    if options.action == "lock":
        lock(files=files, upgrade=options.upgrade)
        return 0
    found = [problem for python in PYTHONS for problem in problems(files=files, python=python)]
    print("\n".join([*found, "Run `make lock`."]) if found else f"{len(files)} requirements files are in step with pyproject.toml")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
