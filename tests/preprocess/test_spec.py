"""Sizes and boxes, against torchvision's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import functional

from streamd.preprocess.spec import InputSpec

sides = st.integers(1, 4096)
small_sides = st.integers(1, 40)


def spec(resize, crop):
    return InputSpec(resize=resize, crop=crop, interpolation="bilinear", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@given(height=sides, width=sides, resize=st.integers(1, 600))
def test_the_shorter_side_is_resized_with_torchvisions_rounding(height, width, resize):
    picture = torch.empty(1, 1, 1).expand(1, height, width)
    expected = functional._compute_resized_output_size((height, width), [resize])
    assert list(spec(resize, (1, 1)).resized(height, width)) == expected
    if max(expected) < 2000 and max(height, width) < 500:
        assert functional.resize(picture, [resize], antialias=True).shape[1:] == tuple(expected)


@pytest.mark.parametrize(
    ("size", "resized", "start"),
    [
        ((1080, 1920), (232, 412), (4, 94)),
        ((1920, 1080), (412, 232), (94, 4)),
        ((720, 1280), (232, 412), (4, 94)),
        ((480, 640), (232, 309), (4, 42)),
    ],
)
def test_common_video_sizes_land_where_torchvision_puts_them(size, resized, start):
    geometry = spec(232, (224, 224)).geometry(*size, rotation_deg=0)
    assert (geometry.rows.resized, geometry.cols.resized) == resized
    assert (geometry.rows.start, geometry.cols.start) == start
    assert (geometry.rows.kept, geometry.cols.kept) == (224, 224)


@given(size=st.tuples(small_sides, small_sides), crop=st.tuples(small_sides, small_sides), rotation=st.sampled_from([0, 90, 180, 270]))
def test_turning_and_cropping_the_stored_picture_equals_cropping_the_upright_one(size, crop, rotation):
    stored = np.arange(1, size[0] * size[1] + 1).reshape(size)
    upright = np.rot90(stored, -rotation // 90).copy()
    expected = functional.center_crop(torch.from_numpy(upright)[None], list(crop))[0].numpy()

    geometry = spec(upright.shape, crop).geometry(*size, rotation_deg=rotation)
    rows, cols = (
        np.arange(axis.source)[:: -1 if axis.is_reversed else 1][axis.start : axis.stop] for axis in (geometry.rows, geometry.cols)
    )
    kept = stored[np.ix_(rows, cols)]
    kept = kept.T if geometry.is_transposed else kept
    assert kept.shape == (geometry.height, geometry.width)
    result = np.zeros(crop, dtype=stored.dtype)
    result[geometry.top : geometry.top + geometry.height, geometry.left : geometry.left + geometry.width] = kept
    assert (result == expected).all()


def test_a_portrait_video_stored_lying_is_resized_by_its_upright_size():
    lying = spec(232, (224, 224)).geometry(1080, 1920, rotation_deg=90)
    assert (lying.rows.resized, lying.cols.resized) == (232, 412)
    assert spec((300, 200), (200, 200)).geometry(1080, 1920, rotation_deg=90).cols.resized == 300


def test_a_slanted_turn_is_refused():
    with pytest.raises(ValueError, match="45"):
        spec(232, (224, 224)).geometry(100, 100, rotation_deg=45)
