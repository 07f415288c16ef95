"""Records as JSON text: alone, as the fields `data` of Redis hold them, or as a line of their own with a `type` in front."""

from __future__ import annotations

import json

import msgspec

from streamd.records import CameraRemoved, CameraState, Event, Record, Result, encode

_TYPES: dict[type, bytes] = {
    Result: b'{"type":"result",',
    Event: b'{"type":"event",',
    CameraState: b'{"type":"state",',
    CameraRemoved: b'{"type":"removed",',
}


def payload(record: Record) -> bytes:
    """One JSON object, without a line break. Text that is no Unicode, out of a file's name say, gets question marks."""
    try:
        return encode(record)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(record), ensure_ascii=False).encode("utf-8", "replace")


def line(record: Record) -> bytes:
    """`payload` with `type` (`result`, `event`, `state` or `removed`, as in `streamd schema`) as its first key, and a line feed."""
    return _TYPES[type(record)] + payload(record)[1:] + b"\n"
