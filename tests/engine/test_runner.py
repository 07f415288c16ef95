"""Running a batch on the CPU gives what plain torch gives; batch sizes for CUDA graphs."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from streamd.engine.runner import CpuRunner, batch_sizes
from streamd.engine.slots import SlotPool
from streamd.models import LoadedModel
from streamd.preprocess.spec import InputSpec
from streamd.types import Batch, FrameRef, Sample

SPEC = InputSpec(resize=8, crop=(6, 8), interpolation="bilinear", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
CLASSES = 7


@pytest.fixture
def model() -> LoadedModel:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 6, CLASSES), nn.Hardtanh(-9.0, 9.0)).eval()
    return LoadedModel(name="tiny", module=module.requires_grad_(requires_grad=False), labels=tuple("abcdefg"), input=SPEC)


@pytest.fixture
def pool() -> SlotPool:
    pool = SlotPool(6, height=6, width=8, dtype=torch.float32, device=torch.device("cpu"))
    pool.rows.copy_(torch.rand(pool.rows.shape, generator=torch.Generator().manual_seed(5)) * 9)
    return pool


def batch(*slots: int) -> Batch:
    ref = FrameRef(camera="a", session="s", sequence=0, pts=None, time_base=Fraction(1), captured_ns=0, received_ns=0, decoded_ns=0)
    return Batch(samples=[Sample(ref=ref, slot=slot, ready_ns=0, expires_ns=None) for slot in slots], formed_ns=0)


@pytest.mark.parametrize("slots", [(0,), (4, 1, 3), (5, 4, 3, 2, 1, 0)])
@pytest.mark.parametrize("top_k", [1, 3, CLASSES])
def test_the_best_classes_are_those_of_a_plain_softmax_over_all_classes(model, pool, slots, top_k):
    runner = CpuRunner(model, pool, top_k=top_k)
    runner.warm_up()
    ranked = runner.collect(runner.launch(batch(*slots)))
    for row, slot in enumerate(slots):
        expected = model.module(pool.views[slot][None])[0].softmax(dim=0)
        order = expected.argsort(descending=True)[:top_k]
        assert ranked.classes[row] == order.tolist()
        assert ranked.probabilities[row] == pytest.approx(expected[order].tolist(), abs=1e-6)


def test_a_model_with_fewer_classes_than_are_asked_for_gives_all_it_has(model, pool):
    ranked = CpuRunner(model, pool, top_k=100).launch(batch(2))
    assert sorted(ranked.classes[0]) == list(range(CLASSES))
    assert sum(ranked.probabilities[0]) == pytest.approx(1, abs=1e-5)


def test_results_are_plain_numbers_that_keep_no_tensor_alive(model, pool):
    ranked = CpuRunner(model, pool, top_k=2).launch(batch(0, 1))
    assert {type(index) for row in ranked.classes for index in row} == {int}
    assert {type(value) for row in ranked.probabilities for value in row} == {float}


@settings(deadline=None)
@given(st.integers(1, 1024))
def test_batch_sizes_rise_to_the_largest_and_the_next_size_up_is_less_than_double(max_batch):
    sizes = batch_sizes(max_batch)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, max_batch)
    assert all(upper <= 2 * lower for lower, upper in pairwise(sizes))


@pytest.mark.parametrize(("max_batch", "sizes"), [(1, [1]), (2, [1, 2]), (24, [1, 2, 4, 8, 16, 24]), (32, [1, 2, 4, 8, 16, 32])])
def test_batch_sizes_are_powers_of_two_and_the_largest(max_batch, sizes):
    assert batch_sizes(max_batch) == sizes
