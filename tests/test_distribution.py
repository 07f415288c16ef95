"""What is published is what is in the checkout, and installs without the checkout."""

from __future__ import annotations

import email
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import streamd

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the sdist, and with the wheel that is built from it, both made without a network."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    with zipfile.ZipFile(built / f"streamd-{streamd.__version__}-py3-none-any.whl") as archive:
        yield archive


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "streamd").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    info = f"streamd-{streamd.__version__}.dist-info/"
    assert {name for name in wheel.namelist() if not name.startswith(info)} == package
    assert "streamd/py.typed" in package
    assert f"{info}licenses/LICENSE" in wheel.namelist()


def test_the_wheel_installs_the_streamd_command(wheel):
    entry_points = wheel.read(f"streamd-{streamd.__version__}.dist-info/entry_points.txt").decode()
    assert entry_points == "[console_scripts]\nstreamd = streamd.cli:main\n"


def test_the_metadata_names_version_license_and_pythons(wheel):
    metadata = email.message_from_bytes(wheel.read(f"streamd-{streamd.__version__}.dist-info/METADATA"))
    assert metadata["Version"] == streamd.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    assert {"gpu", "dali", "demo", "dev"} <= set(metadata.get_all("Provides-Extra"))


def test_the_sdist_holds_what_a_packager_needs(built):
    with tarfile.open(built / f"streamd-{streamd.__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "streamd/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests", ".ci"))]
