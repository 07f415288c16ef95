"""Takes credentials out of text: by their form, and by value once `add_secrets` was told them. Knows neither logs nor configuration.

It errs on the side of hiding: after `://`, all up to the last `@` before white space is gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

HIDDEN = "***"
MIN_SECRET_CHARS = 4
"""Shorter values are not replaced by value: they would tear holes in ordinary words."""

# Each pattern begins with fixed text and takes all it looked at, so that a long line is searched in linear time.

_ADDRESS = re.compile(r"://(\S*)")
"""rtsp://user:password@host. A password may hold a /, a # or a quotation mark that nobody encoded, and even an @."""

_HEADER = re.compile(r"(authorization[\"']?[ \t]*[:=])[^\r\n]*", re.IGNORECASE)
"""Authorization: Digest username="…", response="…": the rest of the line."""

_PARAMETER = re.compile(r"((?:pass(?:word|wd|phrase)?|pwd|token|secret|signature|credential|api[_-]?key)=)[^&\s]+", re.IGNORECASE)
"""?user=admin&password=…&access_token=…&X-Amz-Signature=…"""

# What the process was told to hide. It belongs to the process as standard error does: who redacts text need not know the configuration.
_known: frozenset[str] = frozenset()
_known_pattern: re.Pattern[str] | None = None


def redact_patterns(text: str) -> str:
    """`text` without what looks like a credential. Doing it again changes nothing."""
    text = _ADDRESS.sub(_without_user_info, text)
    text = _HEADER.sub(rf"\1 {HIDDEN}", text)
    return _PARAMETER.sub(rf"\1{HIDDEN}", text)


def redact(text: str) -> str:
    """`text` without what looks like a credential, and without the values given to `add_secrets`."""
    if _known_pattern is not None:
        text = _known_pattern.sub(HIDDEN, text)
    return redact_patterns(text)


def add_secrets(values: Iterable[str]) -> None:
    """From now on `redact` hides these values too, as they are, percent-encoded, or escaped as in JSON and in Python's repr."""
    global _known, _known_pattern  # noqa: PLW0603
    _known |= {value for value in values if len(value) >= MIN_SECRET_CHARS}
    if _known:
        # Longest first: a secret may begin with another one.
        _known_pattern = re.compile("|".join(_spellings(value) for value in sorted(_known, key=lambda value: (-len(value), value))))


def _without_user_info(address: re.Match[str]) -> str:
    _, at, host = address[1].rpartition("@")
    return f"://{HIDDEN}@{host}" if at else address[0]


def _spellings(value: str) -> str:
    """A regular expression for `value` with each of its characters in any spelling: URL libraries differ in which ones they encode."""
    return "".join(f"(?:{'|'.join(map(re.escape, _of_character(character)))})" for character in value)


def _of_character(character: str) -> list[str]:
    percent = "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
    spellings = {character, percent, percent.lower(), json.dumps(character)[1:-1], repr(character)[1:-1], f"\\{character}"}
    if character == " ":
        spellings.add("+")
    return sorted(spellings, key=lambda spelling: (-len(spelling), spelling))  # longest first, or half of the last one would be left
