"""Rows of one preallocated tensor, each given to one frame at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.engine.slots import SlotPool


def pool_of(count: int) -> SlotPool:
    return SlotPool(count, height=2, width=4, dtype=torch.float32, device=torch.device("cpu"))


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=60))
def test_no_row_is_given_out_twice_and_none_is_lost(takes):
    pool, held = pool_of(5), []
    for take in takes:
        if take:
            slot = pool.take()
            assert (slot is None) == (len(held) == 5)
            if slot is not None:
                assert slot not in held
                held.append(slot)
        elif held:
            pool.give_back(held.pop(0))
        assert pool.free == pool.count - len(held)
    for slot in held:
        pool.give_back(slot)
    assert sorted(pool.take() for _ in range(5)) == [0, 1, 2, 3, 4]
    assert pool.take() is None


def test_a_view_is_the_row_itself_with_channels_first():
    pool = pool_of(3)
    pixels = torch.arange(24.0).view(3, 2, 4)
    pool.views[1].copy_(pixels)
    assert pool.views[1].shape == (3, 2, 4)
    assert torch.equal(pool.rows[1].permute(2, 0, 1), pixels)
    assert torch.count_nonzero(pool.rows[[0, 2]]) == 0


def test_rows_reach_a_model_as_channels_last_without_a_copy():
    pool = pool_of(3)
    assert pool.rows.permute(0, 3, 1, 2).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_samples_that_are_ready_go_into_the_rows_that_are_named(device):
    pool = SlotPool(6, height=2, width=4, dtype=torch.float16, device=torch.device(device))
    samples = torch.arange(72.0, dtype=torch.float16, device=device).view(3, 2, 4, 3)
    pool.fill([4, 0, 5], samples)
    for slot in (4, 0, 5):
        pool.await_filled(slot)
    assert torch.equal(pool.rows[[4, 0, 5]], samples)
    assert torch.count_nonzero(pool.rows[[1, 2, 3]]) == 0
