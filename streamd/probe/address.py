"""The address as a person types it, taken apart into what CameraConfig wants. Its errors repeat nothing of it: a password may be in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from streamd.config.types import SOURCE_SCHEMES


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    """Without credentials; an absolute path where it is a file."""
    username: str | None = None
    password: str | None = None


def split(text: str) -> Address:
    """`rtsp://user:password@host/path` as url, user and password; a path, or file://, as an absolute path.

    A password that nobody percent-encoded is taken as it stands, even one with a `/`, `#` or `?` in it.

    Raises:
        ValueError: this is no address; the text is a whole sentence.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        if not text.strip():
            raise ValueError("the address is empty")
        return Address(url=str(Path(text).absolute()))
    scheme = scheme.lower()
    if scheme == "file":
        return Address(url=str(Path(unquote(urlsplit(text).path)).absolute()))
    if scheme not in SOURCE_SCHEMES:
        raise ValueError(f"an address starts with {', '.join(s + '://' for s in SOURCE_SCHEMES)}, or is the path of a file")
    user_info, at, remainder, encoded = _user_info(rest)
    url = f"{scheme}://{remainder}"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError("the address is not valid: it reads scheme://HOST:PORT/PATH, with a port from 0 to 65535") from None
    if not parts.hostname:
        raise ValueError("the address has no host")
    if not at:
        return Address(url=url)
    user, colon, password = user_info.partition(":")
    decode = unquote if encoded else str
    return Address(url=url, username=decode(user), password=decode(password) if colon else None)


def _user_info(rest: str) -> tuple[str, str, str, bool]:
    """User info, `@` or nothing, what follows, and whether the user info is percent-encoded (RFC 3986, 3.2.1)."""
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        user_info, at, _ = authority.rpartition("@")
        return user_info, at, rest[len(user_info) + 1 :], True
    _, colon, port = authority.rpartition(":")
    is_password = bool(colon) and not authority.endswith("]") and not port.isdecimal() and "@" in rest
    if is_password:  # cut at its own / # or ?
        user_info, at, remainder = rest.rpartition("@")
        return user_info, at, remainder, False
    return "", "", rest, True
