"""The numbers in the pictures, and the model that reads them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from streamd import models, preprocess
from streamd.bench import identity
from streamd.config.types import ModelConfig
from streamd.types import Frame, Matrix

SIZES = [(1920, 1080), (1280, 530), (642, 362), (320, 240), (240, 320)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    config = ModelConfig.model_validate(identity.model(tmp_path_factory.mktemp("identity")))
    return models.load("identity", config, device="cpu")


def read(model, pictures) -> tuple[list[int], float]:
    """The numbers that the model reads, and the lowest of its scores."""
    preprocessor = preprocess.create(model.input, torch.device("cpu"))
    batch = torch.zeros(len(pictures), 3, 224, 224)
    for luma, out in zip(pictures, batch, strict=True):
        grey = torch.full((luma.shape[0] // 2, luma.shape[1] // 2), 128, dtype=torch.uint8)
        frame = Frame(0, torch.from_numpy(luma), grey, grey, 8, 0, Matrix.BT709, full_range=False, rotation_deg=0)
        preprocessor.many([frame], [out])
    scores, classes = model.module(batch).softmax(1).max(1)
    return classes.tolist(), float(scores.min())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_model_reads_the_number_of_the_picture(model, size):
    noise = np.random.default_rng(1)
    numbers = [0, 1, 85, 170, 254, 255]
    pictures = [noise.integers(16, 236, size[::-1], dtype=np.uint8) for _ in numbers]
    for luma, number in zip(pictures, numbers, strict=True):
        identity.mark(luma, number)
    found, lowest = read(model, pictures)
    assert found == numbers
    assert lowest > 0.99


def test_labels_are_the_numbers_themselves(model):
    assert model.labels == tuple(map(str, range(identity.NUMBERS)))


def test_any_two_numbers_differ_in_two_squares_at_least():
    pairs = itertools.combinations([identity.code(number) for number in range(identity.NUMBERS)], 2)
    assert min(sum(a != b for a, b in zip(*pair, strict=True)) for pair in pairs) == 2
