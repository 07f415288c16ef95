"""What every test of a sink needs: what its callbacks were told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from streamd.records import Record, Result
from streamd.sinks.base import Ack
from streamd.types import DropReason


@dataclass
class Told:
    """The arguments of a sink's callbacks, in order."""

    written: list[Record] = field(default_factory=list)
    waited_ns: list[int | None] = field(default_factory=list)
    dropped: list[Record] = field(default_factory=list)
    lost: list[tuple[str | None, int, DropReason]] = field(default_factory=list)
    found: dict[str | None, int] = field(default_factory=dict)

    def on_written(self, acks: Sequence[Ack]) -> None:
        assert acks
        self.written += [ack.record for ack in acks]
        self.waited_ns += [ack.waited_ns for ack in acks]

    def on_lost(self, camera: str | None, count: int, reason: DropReason) -> None:
        assert count > 0
        self.lost.append((camera, count, reason))

    def on_found(self, camera: str | None, count: int) -> None:
        self.found[camera] = count

    def on_dropped(self, records: Sequence[Record]) -> None:
        assert records
        self.dropped += records

    @property
    def written_sequences(self) -> list[int]:
        return [record.sequence for record in self.written if isinstance(record, Result)]

    @property
    def dropped_sequences(self) -> list[int]:
        return [record.sequence for record in self.dropped if isinstance(record, Result)]


@pytest.fixture
def told() -> Told:
    return Told()
