"""Resampling weights as matrices: the resize along one axis of a plane is `matrix @ plane`, with crop and rotation already in it.

The filters are those of Pillow and of torch's `antialias=True`: triangle and Keys cubic (a = -0.5), widened by the scale when shrinking.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamd.preprocess.spec import Axis, Interpolation

Weights = NDArray[np.float64]

_SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}


def resampling_weights(axis: Axis, interpolation: Interpolation, *, plane_size: int) -> Weights:
    """A matrix [stop - start, plane_size] whose product with a plane's samples gives the kept samples of the resized axis.

    `plane_size` is `axis.source`, or less for a subsampled chroma plane. Chroma is taken as linear between its samples, each sample as
    lying in the middle of the luma samples it goes with: what FFmpeg's swscale does with `full_chroma_int`. (Video is mostly sited half a
    luma sample further left, but hardly ever says so.)
    Raises ValueError when the plane is not `axis.source` subsampled by 1, 2 or 4.
    """
    scale = axis.source / axis.resized
    stretch = max(scale, 1.0)
    support = _SUPPORT[interpolation] * stretch
    centers = (np.arange(axis.start, axis.stop) + 0.5) * scale
    samples = np.arange(axis.source)
    # Pillow takes the samples from int(center - support + 0.5) up to int(center + support + 0.5), within the picture (Resample.c).
    first = np.maximum(np.floor(centers - support + 0.5), 0)[:, None]
    last = np.minimum(np.floor(centers + support + 0.5), axis.source)[:, None]
    weights = _filter((samples - centers[:, None] + 0.5) / stretch, interpolation)
    weights = np.where((samples >= first) & (samples < last), weights, 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    if axis.is_reversed:
        weights = weights[:, ::-1]
    return _on_chroma(weights, plane_size) if plane_size != axis.source else weights


def _filter(distance: Weights, interpolation: Interpolation) -> Weights:
    x = np.abs(distance)
    if interpolation == "bilinear":
        return np.maximum(1.0 - x, 0.0)
    a = -0.5
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _on_chroma(weights: Weights, plane_size: int) -> Weights:
    """Weights of luma samples [kept, luma_size] as weights of the chroma samples that they are interpolated from [kept, plane_size]."""
    luma_size = weights.shape[1]
    step = next((step for step in (2, 4) if -(-luma_size // step) == plane_size), None)
    if step is None:
        raise ValueError(f"a chroma plane of {plane_size} samples does not go with {luma_size} luma samples")
    positions = np.clip((np.arange(luma_size) - (step - 1) / 2) / step, 0, plane_size - 1)
    lower = np.floor(positions).astype(np.intp)
    upper = np.minimum(lower + 1, plane_size - 1)
    fraction = positions - lower
    on_chroma = np.zeros((plane_size, len(weights)))
    np.add.at(on_chroma, lower, (weights * (1 - fraction)).T)
    np.add.at(on_chroma, upper, (weights * fraction).T)
    return on_chroma.T
