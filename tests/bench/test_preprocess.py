"""The cost of preprocessing, on the CPU and on a GPU."""

from __future__ import annotations

import pytest

from streamd.bench import preprocess


def test_on_the_cpu_there_is_one_implementation_and_no_time_on_a_device(monkeypatch):
    monkeypatch.setattr(preprocess, "_ROUNDS", 3)
    monkeypatch.setattr(preprocess, "_FRAMES", 2)
    (result,) = preprocess.measure("cpu", width=320, height=240)
    assert (result.implementation, result.width, result.height, result.device_us) == ("torch", 320, 240, None)
    assert 10 < result.host_us < 100_000


@pytest.mark.gpu
def test_on_a_gpu_both_are_measured_and_the_fused_one_is_faster_most_of_all_with_many_frames_a_launch():
    single, shared, plain = preprocess.measure("cuda")
    assert [result.implementation for result in (single, shared, plain)] == ["fused", "fused", "torch"]
    assert 0 < shared.device_us < single.device_us < plain.device_us
    assert shared.host_us < single.host_us
