"""Connections to Redis or Valkey, for whoever needs one: sinks, the client, diagnosis. Nothing else imports the redis library.

A Connection belongs to one task and is used up by its first failure: it is closed, never read again, and never connects by itself. So
no reply can be taken for that of another command, and whoever owns it decides what is sent again. RESP2 is spoken on purpose: its
replies look the same in every release of the library and of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from hiredis import pack_command
from redis.asyncio import ConnectionPool, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from streamd.errors import StreamdError
from streamd.redact import redact

Command: TypeAlias = tuple[str | bytes | int | float, ...]

_REPLIES_A_DEADLINE = 50
"""Replies that share one deadline; setting it anew costs as much as reading a reply."""

# The library takes the code off the text of some errors, and leaves it in others.
_CODES: dict[type[RedisError], str] = {
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    NoPermissionError: "NOPERM",
    BusyLoadingError: "LOADING",
}


class RedisAddressError(StreamdError):
    """The address cannot be one of Redis."""


class RedisUnavailable(StreamdError):
    """Nothing answers, or the connection broke; what was sent may or may not have arrived. Another connection may work."""


class RedisRefused(RedisUnavailable):
    """Redis answers, but does not let us in: the user name, the password, or none of them."""


@dataclass(frozen=True, slots=True)
class ServerError:
    """An error as the reply to one command. The connection is fine."""

    code: str
    """First word of the reply: `OOM`, `WRONGTYPE`, `READONLY`, `NOPERM`, … or `ERR`."""
    message: str

    def __str__(self) -> str:
        return f"{self.code} {self.message}"


Reply: TypeAlias = bytes | int | list[Any] | ServerError | None
"""Lists hold replies, without errors."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where Redis is and who we are there. `str()` leaves credentials out. Raises RedisAddressError."""

    url: str = field(repr=False)
    """redis://, rediss:// or unix://, with options of the redis library in its query, `?ssl_ca_certs=…` say."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.connection(timeout_s=1.0)

    def __str__(self) -> str:
        return redact(self.url)

    def connection(self, *, timeout_s: float) -> Any:
        """One of the library's connections, not open yet."""
        try:
            pool = ConnectionPool.from_url(self.url)
            settings = {
                **pool.connection_kwargs,
                "socket_connect_timeout": timeout_s,
                "socket_timeout": None,  # Connection keeps the time: the library's asyncio.wait_for can swallow a cancellation on 3.11
                "socket_keepalive": True,
                "retry": Retry(NoBackoff(), 0),
                "protocol": 2,
                "decode_responses": False,
            }
            if self.username is not None:
                settings["username"] = self.username
            if self.password is not None:
                settings["password"] = self.password
            if issubclass(pool.connection_class, UnixDomainSocketConnection):
                del settings["socket_keepalive"]
            return pool.connection_class(**settings)
        except (ValueError, TypeError, AttributeError, RedisError) as error:
            raise RedisAddressError(f"{self} is not an address of Redis: {redact(str(error))}") from None


class Connection:
    """Use as `async with`: open inside, closed after it. Owned by one task."""

    def __init__(self, address: Address, *, timeout_s: float = 2.0) -> None:
        """`timeout_s` is the longest wait for the connection, for the other end to take what is sent, and for each reply."""
        self._address = address
        self._timeout_s = timeout_s
        self._connection = address.connection(timeout_s=timeout_s)
        self._transport: asyncio.WriteTransport | None = None

    async def open(self) -> None:
        """Connect and log in. Raises RedisUnavailable, RedisRefused."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connection.connect()
            # Closing waits until all is sent, which a server that hangs never takes; only the transport can give that up.
            self._transport = self._connection._writer.transport  # noqa: SLF001
        except (RedisError, OSError) as error:
            await self.close()
            raise self._translated(error) from None
        except BaseException:
            await self.close()
            raise

    async def execute(self, commands: Sequence[Command]) -> list[Reply]:
        """Send `commands` at once and return their replies, one each, in order.

        Raises RedisUnavailable or RedisRefused after closing the connection; so does a cancellation. An error that the server gives to
        one command is its reply.
        """
        packed = [b"".join(pack_command(command) for command in commands)]  # type: ignore[arg-type]  # its stub knows tuples of one
        now_s = asyncio.get_running_loop().time
        replies: list[Reply] = []
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                await self._connection.send_packed_command(packed, check_health=False)
                for number in range(len(commands)):
                    if number % _REPLIES_A_DEADLINE == 0:
                        limit.reschedule(now_s() + self._timeout_s)
                    replies.append(await self._reply())
        except (RedisError, OSError) as error:
            await self.close()
            raise self._translated(error) from None
        except BaseException:
            await self.close()
            raise
        return replies

    async def close(self) -> None:
        """Close it at once, whatever is still to be sent; may be called again."""
        with contextlib.suppress(RedisError, OSError):
            await self._connection.disconnect(nowait=True)
        if self._transport is not None:
            self._transport.abort()

    async def _reply(self) -> Reply:
        try:
            reply: Reply = await self._connection.read_response()
        except ResponseError as error:
            return _server_error(error)
        return reply

    def _translated(self, error: Exception) -> RedisUnavailable:
        kind = RedisRefused if isinstance(error, AuthenticationError | AuthorizationError | ResponseError) else RedisUnavailable
        return kind(f"{self._address}: {redact(self._reason(error))}")

    def _reason(self, error: Exception) -> str:
        if isinstance(error, RedisTimeoutError | TimeoutError):
            return f"no answer within {self._timeout_s:g} s"
        cause: BaseException | None = error
        while cause is not None:  # the library hides the system's own words in a sentence of its own
            if isinstance(cause, ssl.SSLError):  # an OSError too, whose number means something else
                words = getattr(cause, "verify_message", None) or str(cause.reason).lower().replace("_", " ")
                return f"TLS: {words}"
            if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
                return os.strerror(cause.errno)
            cause = cause.__cause__ or cause.__context__
        return str(_server_error(error)) if isinstance(error, ResponseError | BusyLoadingError) else str(error)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


class Backoff:
    """How long to wait before the next attempt: doubles from `first_s` up to `most_s`, with jitter, until `reset`."""

    def __init__(self, *, first_s: float = 0.1, most_s: float = 5.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._failures = 0

    def next_s(self) -> float:
        """Seconds: between half of the full delay and all of it, so that many processes do not return together."""
        full_s = min(self._most_s, self._first_s * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return full_s * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets

    def reset(self) -> None:
        self._failures = 0


def _server_error(error: RedisError) -> ServerError:
    text = redact(str(error))
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return ServerError(code, text)
    first, _, rest = text.partition(" ")
    return ServerError(first, rest) if first.isupper() and first.isalpha() else ServerError("ERR", text)
