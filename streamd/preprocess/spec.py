"""What a model wants to see, and where in a picture it lies: sizes and boxes as torchvision's transforms compute them.

Integers only: no pixel is touched here and torch is not imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Size = tuple[int, int]
"""Height, width."""
Channels = tuple[float, float, float]
Interpolation = Literal["bilinear", "bicubic"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a stored picture: its `source` samples shrink or grow to `resized`, of which [start, stop) are kept."""

    source: int
    resized: int
    start: int
    stop: int
    is_reversed: bool
    """`resized`, `start` and `stop` count from the stored picture's far end, as the upright picture shows it."""

    @property
    def kept(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a stored picture maps to the input of a model.

    `rows` and `cols` are the stored picture's axes. When `is_transposed`, rows of the stored picture are columns of the input. The result
    lies at `top`, `left` in the input; what it does not cover is black.
    """

    rows: Axis
    cols: Axis
    is_transposed: bool
    top: int
    left: int

    @property
    def height(self) -> int:
        """Rows of the input that the picture covers."""
        return (self.cols if self.is_transposed else self.rows).kept

    @property
    def width(self) -> int:
        return (self.rows if self.is_transposed else self.cols).kept


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The transforms that belong to a model's weights: antialiased resize, centre crop, normalisation `(x - mean) / std`."""

    resize: int | Size
    """Length of the shorter side after the resize, in pixels; or the exact size."""
    crop: Size
    interpolation: Interpolation
    mean: Channels
    """R, G, B on the scale 0..1."""
    std: Channels

    def resized(self, height: int, width: int) -> Size:
        """Size of an upright picture after the resize; rounds as `torchvision.transforms.functional.resize` does."""
        if not isinstance(self.resize, int):
            return self.resize
        short, long = sorted((height, width))
        resized_long = int(self.resize * long / short)
        return (self.resize, resized_long) if height <= width else (resized_long, self.resize)

    def geometry(self, height: int, width: int, *, rotation_deg: int) -> Geometry:
        """Where the input lies in a stored picture of `height` x `width` that is upright after a clockwise turn by `rotation_deg`.

        Raises ValueError for a turn that is not 0, 90, 180 or 270 degrees.
        """
        if rotation_deg not in (0, 90, 180, 270):
            raise ValueError(f"rotation_deg is {rotation_deg}; it must be 0, 90, 180 or 270")
        is_transposed = rotation_deg in (90, 270)
        upright = (width, height) if is_transposed else (height, width)
        resized = self.resized(*upright)
        vertical = _center_crop(resized[0], self.crop[0])
        horizontal = _center_crop(resized[1], self.crop[1])
        # A clockwise turn by 90 degrees shows the stored columns top to bottom and the stored rows right to left; by 270 the reverse.
        down = Axis(upright[0], resized[0], vertical.start, vertical.stop, is_reversed=rotation_deg in (180, 270))
        across = Axis(upright[1], resized[1], horizontal.start, horizontal.stop, is_reversed=rotation_deg in (90, 180))
        rows, cols = (across, down) if is_transposed else (down, across)
        return Geometry(rows=rows, cols=cols, is_transposed=is_transposed, top=vertical.padding, left=horizontal.padding)


@dataclass(frozen=True, slots=True)
class _Crop:
    start: int
    stop: int
    padding: int


def _center_crop(size: int, crop: int) -> _Crop:
    """As `torchvision.transforms.functional.center_crop`: halves round to even, a small picture is padded, the odd pixel at its end."""
    if size < crop:
        return _Crop(0, size, (crop - size) // 2)
    start = round((size - crop) / 2.0)
    return _Crop(start, start + crop, 0)
