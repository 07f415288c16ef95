"""Resampling weights in the order in which the kernel (fused.cu) reads them. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamd.preprocess.weights import Weights

TILE = 4
"""Rows of the output that a block makes, as in fused.cu."""
_AHEAD = 8
"""Source rows that a block loads together, as in fused.cu."""


class RowTable(NamedTuple):
    """Vertical weights as the kernel reads them, see `Rows` in fused.cu."""

    first: NDArray[np.int32]
    weights: NDArray[np.float32]
    """[tiles, span, TILE]"""


class ColumnTable(NamedTuple):
    """Horizontal weights as the kernel reads them, see `Columns` in fused.cu."""

    first: NDArray[np.int32]
    weights: NDArray[np.float32]
    """[taps, columns]"""


def row_table(weights: Weights) -> RowTable:
    """The table for a matrix [output rows, source rows]."""
    count, source = weights.shape
    tiles = -(-count // TILE)
    bounds = [_used(weights[tile * TILE : (tile + 1) * TILE]) for tile in range(tiles)]
    span = max(stop - start for start, stop in bounds)
    span = min(-(-span // _AHEAD) * _AHEAD, source)
    first = np.array([min(start, source - span) for start, _ in bounds], dtype=np.int32)
    table = np.zeros((tiles, span, TILE), dtype=np.float32)
    for tile, begin in enumerate(first):
        rows = weights[tile * TILE : (tile + 1) * TILE, begin : begin + span]
        table[tile, :, : len(rows)] = rows.T
    return RowTable(first, table)


def column_table(weights: Weights) -> ColumnTable:
    """The table for a matrix [output columns, source columns]."""
    count, source = weights.shape
    bounds = [_used(row[None]) for row in weights]
    taps = max(stop - start for start, stop in bounds)
    first = np.array([min(start, source - taps) for start, _ in bounds], dtype=np.int32)
    table = np.zeros((taps, count), dtype=np.float32)
    for column, begin in enumerate(first):
        table[:, column] = weights[column, begin : begin + taps]
    return ColumnTable(first, table)


def _used(weights: Weights) -> tuple[int, int]:
    used = np.flatnonzero(weights.any(axis=0))
    return int(used[0]), int(used[-1]) + 1
