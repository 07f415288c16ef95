"""The configuration: `load` reads and checks the files, `types` says what is in them. Imports neither torch, av nor redis."""

from streamd.config.loader import find, load
from streamd.config.redaction import secrets
from streamd.config.types import CameraConfig, Config

__all__ = ["CameraConfig", "Config", "find", "load", "secrets"]
