"""The rule for colours, and the arithmetic of H.273."""

from __future__ import annotations

import pytest

from streamd.color import resolve, to_rgb
from streamd.types import ColorTags, Matrix


@pytest.mark.parametrize(
    ("code", "matrix"),
    [
        (1, Matrix.BT709),
        (4, Matrix.FCC),
        (5, Matrix.BT601),
        (6, Matrix.BT601),
        (7, Matrix.SMPTE240M),
        (9, Matrix.BT2020),
        (10, Matrix.BT2020),
    ],
)
@pytest.mark.parametrize("height", [480, 1080])
def test_a_tagged_matrix_is_believed_at_any_size(code, matrix, height):
    assert resolve(ColorTags(matrix=code), height=height, pixel_format="yuv420p")[0] is matrix


@pytest.mark.parametrize("code", [0, 2, 3, 8, 14, 255])
@pytest.mark.parametrize(("height", "matrix"), [(144, Matrix.BT601), (719, Matrix.BT601), (720, Matrix.BT709), (2160, Matrix.BT709)])
def test_without_a_usable_matrix_tag_720_lines_decide(code, height, matrix):
    assert resolve(ColorTags(matrix=code), height=height, pixel_format="yuv420p")[0] is matrix
    assert resolve(ColorTags(matrix=code), height=height, pixel_format=None)[0] is matrix


@pytest.mark.parametrize("pixel_format", ["gbrp", "gbrp10le", "rgb24", "bgra"])
@pytest.mark.parametrize("code", [0, 1, 2])
def test_rgb_formats_have_no_matrix_whatever_the_tag_says(pixel_format, code):
    assert resolve(ColorTags(matrix=code), height=1080, pixel_format=pixel_format) == (Matrix.IDENTITY, True)


@pytest.mark.parametrize(
    ("tag", "pixel_format", "full"),
    [
        (0, "yuv420p", False),
        (0, None, False),
        (0, "gray", False),
        (0, "yuvj420p", True),
        (0, "gbrp", True),
        (1, "yuvj420p", False),
        (1, "gbrp", False),
        (2, "yuv420p", True),
        (7, "yuv420p", False),
    ],
)
def test_a_tagged_range_is_believed_and_else_the_format_decides(tag, pixel_format, full):
    assert resolve(ColorTags(range=tag), height=1080, pixel_format=pixel_format)[1] is full


def rgb_of(codes, matrix, *, full_range, bit_depth=8, shift=0):
    to = to_rgb(matrix, full_range=full_range, bit_depth=bit_depth, shift=shift)
    return [
        sum(factor * code for factor, code in zip(row, codes, strict=True)) + zero for row, zero in zip(to.matrix, to.offset, strict=True)
    ]


@pytest.mark.parametrize(
    ("matrix", "full", "depth", "codes", "rgb"),
    [
        # The colour bars' codes as published, rounded to integers: red, green, blue.
        (Matrix.BT601, False, 8, (81, 90, 240), (1, 0, 0)),
        (Matrix.BT601, False, 8, (145, 54, 34), (0, 1, 0)),
        (Matrix.BT601, False, 8, (41, 240, 110), (0, 0, 1)),
        (Matrix.BT709, False, 8, (63, 102, 240), (1, 0, 0)),
        (Matrix.BT709, False, 8, (173, 42, 26), (0, 1, 0)),
        (Matrix.BT709, False, 8, (32, 240, 118), (0, 0, 1)),
        (Matrix.BT709, False, 10, (250, 409, 960), (1, 0, 0)),
        (Matrix.BT2020, False, 10, (294, 387, 960), (1, 0, 0)),
        (Matrix.BT601, True, 8, (76, 85, 255.5), (1, 0, 0)),
        (Matrix.BT601, True, 8, (150, 44, 21), (0, 1, 0)),
    ],
)
def test_the_codes_of_pure_colours_give_pure_colours(matrix, full, depth, codes, rgb):
    assert rgb_of(codes, matrix, full_range=full, bit_depth=depth) == pytest.approx(rgb, abs=0.006)


@pytest.mark.parametrize("matrix", [matrix for matrix in Matrix if matrix is not Matrix.IDENTITY])
@pytest.mark.parametrize("depth", [8, 10, 12])
def test_black_grey_and_white_have_no_colour(matrix, depth):
    middle, top = 2 ** (depth - 1), 2**depth - 1
    unit = 2 ** (depth - 8)
    assert rgb_of((0, middle, middle), matrix, full_range=True, bit_depth=depth) == pytest.approx([0, 0, 0], abs=1e-9)
    assert rgb_of((top, middle, middle), matrix, full_range=True, bit_depth=depth) == pytest.approx([1, 1, 1])
    assert rgb_of((16 * unit, middle, middle), matrix, full_range=False, bit_depth=depth) == pytest.approx([0, 0, 0], abs=1e-9)
    assert rgb_of((235 * unit, middle, middle), matrix, full_range=False, bit_depth=depth) == pytest.approx([1, 1, 1])


def test_identity_takes_the_planes_as_green_blue_and_red():
    assert rgb_of((51, 102, 204), Matrix.IDENTITY, full_range=True) == pytest.approx([0.8, 0.2, 0.4])
    assert rgb_of((16, 235, 125.5), Matrix.IDENTITY, full_range=False) == pytest.approx([0.5, 0, 1])


def test_left_aligned_samples_mean_the_same_as_right_aligned_ones():
    codes = (500, 300, 700)
    aligned = tuple(code << 6 for code in codes)
    right = rgb_of(codes, Matrix.BT709, full_range=False, bit_depth=10)
    assert rgb_of(aligned, Matrix.BT709, full_range=False, bit_depth=10, shift=6) == pytest.approx(right)
