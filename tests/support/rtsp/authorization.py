"""Who may see a path: HTTP Basic and Digest (RFC 2617, as RTSP 1.0 uses it)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

REALM = "test camera"
_PARAMETER = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s,]+))')


def challenge(scheme: str, *, nonce: str) -> str:
    """The WWW-Authenticate header's value for `basic`, `digest` or `digest-rfc2069`."""
    if scheme == "basic":
        return f'Basic realm="{REALM}"'
    qop = "" if scheme == "digest-rfc2069" else ', qop="auth"'
    return f'Digest realm="{REALM}", nonce="{nonce}"{qop}'


def is_authorized(header: str, *, scheme: str, method: str, nonce: str, username: str, password: str) -> bool:
    """Whether an Authorization header's value proves the password."""
    kind, _, rest = header.partition(" ")
    if scheme == "basic":
        expected = base64.b64encode(f"{username}:{password}".encode()).decode()
        return kind.lower() == "basic" and hmac.compare_digest(rest.strip(), expected)
    given = {match[1].lower(): match[2] or match[3] or "" for match in _PARAMETER.finditer(rest)}
    if kind.lower() != "digest" or (given.get("username"), given.get("realm"), given.get("nonce")) != (username, REALM, nonce):
        return False
    secret = _md5(f"{username}:{REALM}:{password}")
    request = _md5(f"{method}:{given.get('uri', '')}")
    if given.get("qop") == "auth" and scheme == "digest":
        expected = _md5(f"{secret}:{nonce}:{given.get('nc', '')}:{given.get('cnonce', '')}:auth:{request}")
    else:
        expected = _md5(f"{secret}:{nonce}:{request}")
    return hmac.compare_digest(given.get("response", ""), expected)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()
