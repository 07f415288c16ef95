"""The resampling weights, against Pillow's own resize of floating point pictures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from streamd.preprocess.spec import Axis
from streamd.preprocess.weights import resampling_weights

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
lengths = st.integers(1, 300)
interpolations = st.sampled_from(sorted(FILTERS))


def whole(source, resized, *, is_reversed=False):
    return Axis(source=source, resized=resized, start=0, stop=resized, is_reversed=is_reversed)


@given(source=lengths, resized=lengths, interpolation=interpolations)
def test_weights_resize_as_pillow_does(source, resized, interpolation):
    samples = np.random.default_rng(source).random(source, dtype=np.float32)
    expected = np.asarray(Image.fromarray(samples[None]).resize((resized, 1), FILTERS[interpolation]))[0]
    assert resampling_weights(whole(source, resized), interpolation, plane_size=source) @ samples == pytest.approx(expected, abs=1e-5)


@given(source=lengths, resized=lengths, interpolation=interpolations, step=st.sampled_from([1, 2, 4]), is_reversed=st.booleans())
def test_every_output_is_a_weighted_mean(source, resized, interpolation, step, is_reversed):
    weights = resampling_weights(whole(source, resized, is_reversed=is_reversed), interpolation, plane_size=-(-source // step))
    assert weights.shape == (resized, -(-source // step))
    assert weights.sum(axis=1) == pytest.approx(1.0)


def test_a_crop_is_a_part_of_the_whole():
    part = resampling_weights(Axis(1080, 232, 4, 228, is_reversed=False), "bicubic", plane_size=1080)
    assert (part == resampling_weights(whole(1080, 232), "bicubic", plane_size=1080)[4:228]).all()


def test_a_reversed_axis_resizes_the_reversed_samples():
    samples = np.random.default_rng(1).random(97)
    forward = resampling_weights(whole(97, 31), "bilinear", plane_size=97)
    backward = resampling_weights(whole(97, 31, is_reversed=True), "bilinear", plane_size=97)
    assert backward @ samples == pytest.approx(forward @ samples[::-1])


@pytest.mark.parametrize("source", [64, 63])
def test_a_slope_in_chroma_stays_in_place_and_straight(source):
    luma_positions = np.arange(source) + 0.5
    chroma_positions = np.arange(-(-source // 2)) * 2 + 1.0
    on_luma = resampling_weights(whole(source, 16), "bilinear", plane_size=source) @ luma_positions
    on_chroma = resampling_weights(whole(source, 16), "bilinear", plane_size=len(chroma_positions)) @ chroma_positions
    assert on_chroma[2:-2] == pytest.approx(on_luma[2:-2])


def test_a_chroma_plane_that_does_not_go_with_the_luma_plane_is_refused():
    with pytest.raises(ValueError, match="50 samples does not go with 64"):
        resampling_weights(whole(64, 16), "bilinear", plane_size=50)
