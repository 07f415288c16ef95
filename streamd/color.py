"""The one written rule for colours: which matrix and range a picture has, and the arithmetic from its code values to R'G'B'.

CPU and GPU paths both take their numbers from here. It looks at tags and at sizes, never at pixels.
"""

from __future__ import annotations

from typing import NamedTuple

from streamd.types import ColorTags, Matrix

Row = tuple[float, float, float]

HD_LINES = 720
"""Untagged video is BT.601 below this many lines and BT.709 from there on."""

_MATRICES = {
    1: Matrix.BT709,
    4: Matrix.FCC,
    5: Matrix.BT601,
    6: Matrix.BT601,
    7: Matrix.SMPTE240M,
    9: Matrix.BT2020,
    10: Matrix.BT2020,
}
_RANGE_LIMITED = 1
_RANGE_FULL = 2
_RGB_PREFIXES = ("gbr", "rgb", "bgr", "argb", "abgr", "0rgb", "0bgr")


class ToRgb(NamedTuple):
    """R'G'B' = `matrix` @ (the three planes' code values) + `offset`; R'G'B' in 0..1, not yet clamped."""

    matrix: tuple[Row, Row, Row]
    offset: Row


def resolve(tags: ColorTags, *, height: int, pixel_format: str | None) -> tuple[Matrix, bool]:
    """The matrix and whether the range is full, for a picture of `height` lines as coded, before any rotation.

    Matrix: the one that is tagged (`matrix_coefficients` of ITU-T H.273, table 4; constant-luminance BT.2020 is taken as the other one);
    unknown, reserved and rare codes give BT.601 below 720 lines and BT.709 from there on. Formats whose planes are R, G and B are
    IDENTITY whatever the tag says, and no other format is.
    Range: the one that is tagged; unknown means full for RGB and for FFmpeg's `yuvj…` formats, limited for all others.
    """
    name = pixel_format or ""
    is_rgb = name.startswith(_RGB_PREFIXES)
    untagged = Matrix.BT601 if height < HD_LINES else Matrix.BT709
    matrix = Matrix.IDENTITY if is_rgb else _MATRICES.get(tags.matrix, untagged)
    if tags.range in (_RANGE_LIMITED, _RANGE_FULL):
        return matrix, tags.range == _RANGE_FULL
    return matrix, is_rgb or name.startswith("yuvj")


def to_rgb(matrix: Matrix, *, full_range: bool, bit_depth: int, shift: int) -> ToRgb:
    """How samples of `bit_depth` significant bits, moved up by `shift` bits, become R'G'B' in 0..1.

    ITU-T H.273 (07/2024), 8.3, solved for R'G'B'. With n bits, limited range: E'Y = (Y / 2^(n-8) - 16) / 219 and
    E'PB = (Cb / 2^(n-8) - 128) / 224; full range: E'Y = Y / (2^n - 1) and E'PB = (Cb - 2^(n-1)) / (2^n - 1); E'PR likewise. Then
    R' = E'Y + 2 (1 - KR) E'PR, B' = E'Y + 2 (1 - KB) E'PB, and G' from E'Y = KR R' + (1 - KR - KB) G' + KB B'.
    IDENTITY: the planes are G, B, R, all on the scale of luma.
    """
    unit = 2.0 ** (bit_depth - 8)
    peak = 2.0**bit_depth - 1
    luma_scale, luma_zero = (1 / peak, 0.0) if full_range else (1 / (219 * unit), 16 * unit)
    chroma_scale = 1 / peak if full_range else 1 / (224 * unit)
    chroma_zero = 128 * unit
    if matrix is Matrix.IDENTITY:
        scales, zeros = (luma_scale,) * 3, (luma_zero,) * 3
        mix: tuple[Row, Row, Row] = ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    else:
        scales, zeros = (luma_scale, chroma_scale, chroma_scale), (luma_zero, chroma_zero, chroma_zero)
        kr, kb = matrix.value
        kg = 1 - kr - kb
        red_of_cr, blue_of_cb = 2 * (1 - kr), 2 * (1 - kb)
        mix = ((1.0, 0.0, red_of_cr), (1.0, -kb * blue_of_cb / kg, -kr * red_of_cr / kg), (1.0, blue_of_cb, 0.0))
    rows = [tuple(share * scale for share, scale in zip(row, scales, strict=True)) for row in mix]
    offset = [-sum(factor * zero for factor, zero in zip(row, zeros, strict=True)) for row in rows]
    step = 2.0**shift
    (r, g, b) = ((row[0] / step, row[1] / step, row[2] / step) for row in rows)
    return ToRgb(matrix=(r, g, b), offset=(offset[0], offset[1], offset[2]))
