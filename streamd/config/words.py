"""pydantic's errors in plain words. No message repeats a value, since any value may be a password."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic_core import ErrorDetails

from streamd.config.scalars import NAME_PATTERN, PREFIX_PATTERN
from streamd.config.types import Section
from streamd.config.yaml import printable

_WHOLE = "must be a whole number"
_NUMBER = "must be a number"
_TEXT = "must be text; put it in quotes if it looks like something else"
_KEYS = "must be a group of keys, one a line, indented below this one"

_SENTENCES = {
    "missing": "must be given",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": _TEXT,
    "string_sub_type": _TEXT,
    "path_type": "must be the path of a file",
    "model_type": _KEYS,
    "model_attributes_type": _KEYS,
    "dict_type": _KEYS,
    "too_short": "must have at least one entry",
}
_PATTERNS = {
    NAME_PATTERN: "must be 1 to 64 letters, digits, `_`, `.` or `-`, and begin with a letter or digit",
    PREFIX_PATTERN: "must be 1 to 64 letters, digits, `_`, `.`, `:`, `-`, `{` or `}`",
}


def _choices(context: Mapping[str, Any]) -> str:
    choices = context["expected"].replace("'", "").replace(" or ", ", ")
    return f"must be one of {choices}" if "," in choices else f"must be {choices}"


_WITH_CONTEXT: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than": lambda context: f"must be greater than {context['gt']:g}",
    "greater_than_equal": lambda context: f"must be at least {context['ge']:g}",
    "less_than_equal": lambda context: f"must be at most {context['le']:g}",
    "string_pattern_mismatch": lambda context: _PATTERNS[context["pattern"]],
    "literal_error": _choices,
    "value_error": lambda context: str(context["error"]),
}


def sentence(error: ErrorDetails, *, known_keys: Iterable[str] = ()) -> str:
    """What is wrong, as the end of a sentence that begins with the key. `known_keys`: those allowed where an unknown one stands."""
    kind = error["type"]
    if kind == "extra_forbidden":
        return unknown(str(error["loc"][-1]), known_keys)
    if kind in {"model_type", "dict_type"} and error["input"] is None:
        return "is empty; give it keys, or leave it out"
    if kind in _WITH_CONTEXT:
        return _WITH_CONTEXT[kind](error["ctx"])
    return _SENTENCES.get(kind) or error["msg"].replace("Input should", "must")


def unknown(key: str, known_keys: Iterable[str]) -> str:
    close = difflib.get_close_matches(key.lower(), sorted(known_keys), n=1)
    return f"unknown key; did you mean `{close[0]}`?" if close else "unknown key"


def either(sentences: Sequence[str]) -> str:
    """One sentence for a value that failed every member of a union: `must be a whole number or auto`."""
    first, *rest = dict.fromkeys(sentences)
    return " or ".join([first, *(other.removeprefix("must be ") for other in rest)])


def keys_at(section: type[Section], loc: Sequence[int | str]) -> list[str]:
    """The keys that the section at `loc`, seen from `section`, may have."""
    parts = iter(loc)
    for part in parts:
        annotation = section.model_fields[str(part)].annotation
        inner = _section_in(annotation)
        if inner is None:
            return []
        section = inner
        if get_origin(annotation) is dict:
            next(parts, None)  # the entry's own name
    return list(section.model_fields)


def _section_in(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)


def list_of(names: Iterable[str]) -> str:
    return ", ".join(printable(name) for name in names)
