"""What every test of a sink needs: what its callbacks were told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from streamd.records import Record, Result


@dataclass
class Told:
    """The arguments of a sink's callbacks, in order."""

    written: list[Record] = field(default_factory=list)
    acked_ns: list[int] = field(default_factory=list)
    dropped: list[Record] = field(default_factory=list)

    def on_written(self, records: Sequence[Record], acked_ns: int) -> None:
        assert records
        self.written += records
        self.acked_ns += [acked_ns] * len(records)

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
