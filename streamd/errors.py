"""The errors of streamd. Catch StreamdError broadly or a leaf narrowly; library errors are translated once, where the library is called.

Every message is a sentence for the person who runs the daemon, and holds no credential.
"""

from __future__ import annotations

from dataclasses import dataclass


class StreamdError(Exception):
    """Base of all errors that streamd raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the configuration, and where. `str()` gives `file:line:column: path: message`."""

    file: str
    message: str
    line: int | None = None
    """From 1; None where the problem is the file itself."""
    column: int | None = None
    """From 1."""
    path: str = ""
    """The key, with the keys around it: `models.imagenet.top_k`."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class ConfigError(StreamdError):
    """The configuration cannot be used. `str()` gives one line a problem: `file:line:column: path: message`."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class ConfigNotFound(ConfigError):
    """There is no configuration at the path that was named, or none on the search path."""


class SourceError(StreamdError):
    """A source cannot be opened or went wrong. The camera reconnects."""

    reason = "source"


class Unreachable(SourceError):
    """Nothing answers: refused, no route, unknown host."""

    reason = "unreachable"


class SourceTimeout(SourceError):
    """No connection, no first packet, or silence for longer than the camera's deadline."""

    reason = "timeout"


class Unauthorized(SourceError):
    """The user name or password is refused. Retried slowly, so that no camera locks the account."""

    reason = "unauthorized"


class NotFound(SourceError):
    """The server or disk answers, but has no such path."""

    reason = "not_found"


class NotVideo(SourceError):
    """What is there holds no video that can be read."""

    reason = "not_video"


class Disconnected(SourceError):
    """A live stream ended or broke off."""

    reason = "disconnected"


class NoFrames(SourceError):
    """Packets came, but the stream ended without one decoded frame."""

    reason = "no_frames"


class DecodeError(StreamdError):
    """The decoder rejected a packet. The camera goes on at the next key frame."""


class DecoderUnavailable(StreamdError):
    """This decoder cannot take this stream, or is not present on this machine."""


class ModelError(StreamdError):
    """A model cannot be loaded: unknown name, unreadable weights, labels that do not fit."""


class DeviceError(StreamdError):
    """The GPU failed or is missing though required. The worker exits; the supervisor starts another."""
