"""A place to write configurations in: the current folder is a fresh one, and the environment names no other configuration."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from streamd.config import loader

MAIN = "models:\n  imagenet:\n    torchvision: resnet50\n"
CAMERA = "url: rtsp://192.0.2.10/stream\n"

Write = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """The current folder, which holds `configs/`; secrets lie in `secrets/`."""
    monkeypatch.chdir(tmp_path)
    for name in ("STREAMD_CONFIG", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(loader, "SECRETS_FOLDER", Path("secrets"))
    (tmp_path / "secrets").mkdir()
    (tmp_path / "configs/cameras").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Write:
    """Writes files under `configs/`: good ones, unless `main` or `cameras` (by file name) say otherwise."""

    def write(main: str | bytes | None = MAIN, **cameras: str | bytes) -> None:
        files = {"streamd.yaml": main, **{f"cameras/{name}": text for name, text in (cameras or {"door.yaml": CAMERA}).items()}}
        for name, text in files.items():
            if text is not None:
                (folder / "configs" / os.fsdecode(name)).write_bytes(text if isinstance(text, bytes) else text.encode())

    return write
