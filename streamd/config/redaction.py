"""What a configuration holds that no log, event or error may show: the values, by which the logger redacts, and the way to a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from streamd.config.types import Config


def secrets(config: Config) -> tuple[str, ...]:
    """Every text that no log may show, longest first: passwords, also as an address spells them, and whatever came from ${file:…}."""
    clear = set(_secrets_in(config))
    return tuple(sorted(clear | {quote(text, safe="") for text in clear}, key=lambda text: (-len(text), text)))


def _secrets_in(value: object) -> Iterator[str]:
    if isinstance(value, SecretStr):
        if value.get_secret_value():
            yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets_in(getattr(value, name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _secrets_in(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from _secrets_in(item)


def reveal(value: Any) -> Any:
    """`value` as plain data with its secrets in clear, for the pipe to a worker and nowhere else."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, BaseModel):
        return {name: reveal(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {key: reveal(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [reveal(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value
