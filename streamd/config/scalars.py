"""The values that keys of several sections share: durations, names, addresses. No error repeats the value, which may hold a password."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import BeforeValidator, Field
from pydantic.json_schema import WithJsonSchema

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")

_GPU_PATTERN = r"([0-9]+|(GPU|MIG)-[0-9a-zA-Z/-]+)"
_GPU = re.compile(_GPU_PATTERN)


def _duration_s(value: object) -> object:
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is not None:
            return float(match[1]) * _UNITS_S[match[2]]
        try:
            return float(value)
        except ValueError:
            raise ValueError("must be a duration: a number of seconds, or a text such as 500ms, 10s, 5m, 1h") from None
    return value


Duration = Annotated[
    float,
    BeforeValidator(_duration_s),
    Field(gt=0, allow_inf_nan=False),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*$"},
            ],
            "description": "A number of seconds, or a text such as 500ms, 10s, 5m, 1h.",
        }
    ),
]


_SIZE_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]B|[KMGT]iB|B)?\s*")


def _size_bytes(value: object) -> object:
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError("must be a size: a number of bytes, or a text such as 500MB, 2GiB")
        return int(float(match[1]) * _SIZE_UNITS[match[2] or "B"])
    return value


Size = Annotated[
    int,
    BeforeValidator(_size_bytes),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([kMGT]B|[KMGT]iB|B)?\s*$"},
            ],
            "description": "A number of bytes, or a text such as 500MB, 2GiB.",
        }
    ),
]
"""Bytes."""


def _gpu_name(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if isinstance(value, str) and _GPU.fullmatch(value):
        return value
    raise ValueError("must be the index or the UUID of a GPU: 0, or GPU-8932f937-d72c-4106-c12f-20bd9faed9f6")


GpuName = Annotated[
    str,
    BeforeValidator(_gpu_name),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{_GPU_PATTERN}$"}]}),
]
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
PREFIX_PATTERN = r"^[A-Za-z0-9_.:{}-]{1,64}$"

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
"""Of a camera or a model: letters, digits, `_`, `.` and `-`, so that it is safe in keys, file names and metrics."""


def split_url(url: str) -> SplitResult:
    """`urlsplit`, whose own errors repeat parts of the address, a password among them."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("is not a valid address") from None
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("has a port that is no number from 0 to 65535") from None
    return parts


def number_from_text(value: object) -> object:
    """A substitution gives text, and a Literal does not convert: `rotate: ${ROTATE:-90}`."""
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,3}", value) else value
