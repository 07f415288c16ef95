"""Local files of a model: a state_dict and its labels. Only tensors are read; a pickle that wants more is refused."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from streamd.errors import ModelError


def read_state_dict(path: Path, *, key: str) -> dict[str, Tensor]:
    """The tensors in a .safetensors, .pt or .pth file by their names, on the CPU. `key` is named in errors.

    Raises ModelError.
    """
    suffix = path.suffix.lower()
    if suffix not in {".safetensors", ".pt", ".pth"}:
        raise ModelError(f"{key}: {path} is none of .safetensors, .pt and .pth")
    if not path.is_file():
        raise ModelError(f"{key}: {path} is not there, or not a file")
    try:
        content = load_file(path) if suffix == ".safetensors" else torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError as error:
        raise ModelError(f"{key}: {path} may not be read by this user") from error
    except Exception as error:  # a damaged file makes the readers raise nearly anything
        raise ModelError(
            f"{key}: {path} cannot be read as plain tensors ({_reason(error)}). Code in a weights file is never run: "
            "save `model.state_dict()` alone, best as .safetensors"
        ) from error
    if not isinstance(content, Mapping) or not content or not all(isinstance(value, Tensor) for value in content.values()):
        found = f"has the entries {_first(content)}" if isinstance(content, Mapping) else f"holds a {type(content).__name__}"
        raise ModelError(f"{key}: {path} {found}; it must hold nothing but a state_dict: save `model.state_dict()` alone")
    return dict(content)


def read_labels(path: Path, *, key: str) -> tuple[str, ...]:
    """The lines of a UTF-8 text file, one class name each; empty lines at the end do not count. Raises ModelError."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ModelError(f"{key}: {path} cannot be read ({reason})") from error
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise ModelError(f"{key}: {path} is empty; write one class name a line, in the order of the model's outputs")
    if "" in lines:
        raise ModelError(f"{key}: {path}:{lines.index('') + 1}: is empty; each line names one output of the model")
    return tuple(lines)


def _reason(error: Exception) -> str:
    """What went wrong in a few words; torch's own text is a page long and explains how to run the code."""
    code = re.search(r"GLOBAL ([\w.]+)", str(error))
    if code:
        return f"it refers to {code[1]}"
    if isinstance(error, pickle.UnpicklingError):
        return "it is no pickle of tensors"
    first_sentence = str(error).strip().partition("\n")[0].partition(". ")[0]
    return first_sentence[:150] or type(error).__name__


def _first(names: Mapping[str, object]) -> str:
    shown = ", ".join(str(name) for name in list(names)[:4])
    return f"{shown}, …" if len(names) > 4 else shown or "(none)"
