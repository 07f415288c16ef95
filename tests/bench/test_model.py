"""The speed of a model, batch by batch."""

from __future__ import annotations

import pytest

from streamd.bench import model, models
from streamd.errors import ModelError


def test_each_size_of_a_batch_is_measured(tmp_path):
    config = models.of_name("squeezenet1_1", tmp_path)
    results = model.measure(config, "cpu", batches=[1, 2], seconds=0.1)
    assert [(result.precision, result.compile, result.batch) for result in results] == [("fp32", False, 1), ("fp32", False, 2)]
    for result in results:
        assert result.images_per_s == pytest.approx(1000 * result.batch / result.ms_per_batch, rel=0.01)


def test_a_model_that_is_not_to_be_had_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"models\.bench"):
        model.measure({"torchvision": "no_such_model"}, "cpu", batches=[1], seconds=0.1)
