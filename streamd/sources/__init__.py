"""Sources: from an address to encoded packets. `of_camera` picks the one for a camera's configuration."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from streamd.config.types import CameraConfig
from streamd.sources import network
from streamd.sources.base import Source
from streamd.sources.file import FileSource


def of_camera(camera: CameraConfig) -> Source:
    """The source that `camera` describes, not yet open."""
    if camera.is_file:
        path = unquote(urlsplit(camera.url).path) if "://" in camera.url else camera.url
        return FileSource(Path(path), loop=camera.loop, keyframes_only=camera.decode == "keyframes")
    return network.of_camera(camera)
