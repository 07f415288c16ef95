"""What a benchmark says to people: a table, and in one sentence what the limit is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from streamd.bench.load import Measured
from streamd.bench.usage import Usage

_CPU_BUSY = 0.9
_GPU_BUSY = 0.97
_DECODER_BUSY = 0.8
"""Less than for the others: NVML averages over a time that reaches back into the start-up, when nothing was decoded."""


def limit(usage: Usage, *, measured: Measured | None = None) -> str:
    """What holds the machine back, by what was busy."""
    if usage.decoder is not None and usage.decoder >= _DECODER_BUSY:
        return f"the decoder: NVDEC was {usage.decoder:.0%} busy"
    if usage.cpu >= _CPU_BUSY:
        return f"the processors: {usage.cpu:.0%} busy"
    if usage.gpu is not None and usage.gpu >= _GPU_BUSY:
        return f"the GPU: {usage.gpu:.0%} busy"
    if measured is not None and measured.dropped:
        return "neither decoder, GPU nor processors as a whole: single threads, or the interpreter locks of the workers"
    return "the load itself: nothing was busy"


def flat(result: object) -> dict[str, Any]:
    """A result as one flat mapping: the fields of nested results after their own names."""
    assert is_dataclass(result)
    assert not isinstance(result, type)
    flattened: dict[str, Any] = {}
    for name, value in asdict(result).items():
        if isinstance(value, Mapping) and name == "usage":
            flattened |= {f"{name}_{key}": item for key, item in value.items()}
        else:
            flattened[name] = value
    return flattened


def table(rows: Mapping[str, Any]) -> str:
    """Names and values in two columns; what is None is left out."""
    shown = {name.replace("_", " "): value for name, value in rows.items() if value is not None}
    width = max(map(len, shown))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items())
