"""What a decoder is: packets in, frames out, on one device. Passive: it holds no thread and knows neither source nor engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streamd.types import Frame, Packet


class Decoder(Protocol):
    """Made for one StreamInfo. A decoder that raised is discarded, never used again."""

    name: str
    """`nvdec` or `cpu`."""

    def decode(self, packet: Packet) -> Sequence[Frame]:
        """Frames that are complete now, in display order; often one, sometimes none. Raises DecodeError.

        They stay valid until the next call, and carry the token of the packet they came from.
        """
        ...

    def drain(self) -> Sequence[Frame]:
        """The frames still held back, in display order. The decoder takes no packet afterwards."""
        ...

    def close(self) -> None:
        """Release the hardware session. May be called any number of times."""
        ...
