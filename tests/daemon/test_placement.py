"""Cameras to workers, and the GPUs that may be used."""

import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.config.types import EngineConfig
from streamd.daemon import placement as module
from streamd.daemon.placement import place, visible_gpus


def cameras(count):
    return [f"c{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("count", "engine", "gpus", "workers"),
    [
        (9, {}, [], 1),
        (9, {}, ["0"], 4),
        (9, {}, ["0", "1"], 8),
        (3, {}, ["0"], 3),
        (9, {"device": "cpu"}, ["0"], 1),
        (9, {"device": "cuda"}, [], 1),
        (9, {"workers": 2}, ["0"], 2),
        (9, {"workers": 3, "device": "cpu"}, [], 3),
        (1, {"workers": 5}, [], 1),
    ],
)
def test_the_number_of_workers_follows_the_gpus_and_never_exceeds_the_cameras(count, engine, gpus, workers):
    assert len(place(cameras(count), engine=EngineConfig(**engine), gpus=gpus)) == workers


@settings(deadline=None)
@given(count=st.integers(1, 50), workers=st.integers(1, 20), gpus=st.integers(0, 3))
def test_every_camera_has_one_worker_and_shares_differ_by_one_at_most(count, workers, gpus):
    placements = place(cameras(count), engine=EngineConfig(workers=workers), gpus=[str(gpu) for gpu in range(gpus)])
    assert sorted(camera for placement in placements for camera in placement.cameras) == sorted(cameras(count))
    shares = [len(placement.cameras) for placement in placements]
    assert max(shares) - min(shares) <= 1
    assert len({placement.worker for placement in placements}) == len(placements)


def test_workers_take_the_gpus_in_turn():
    placements = place(cameras(8), engine=EngineConfig(workers=4), gpus=["0", "GPU-b"])
    assert [placement.gpu for placement in placements] == ["0", "GPU-b", "0", "GPU-b"]


def test_with_one_gpu_there_is_no_choice_to_make():
    assert [placement.gpu for placement in place(cameras(2), engine=EngineConfig(), gpus=["0"])] == [None, None]


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """Sets how many GPUs the driver lists, NVML being absent."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    def lists(count):
        for number in range(count):
            (tmp_path / f"0000:0{number}:00.0").mkdir()
        monkeypatch.setattr(module, "_DRIVER_GPUS", tmp_path if count else tmp_path / "absent")

    return lists


@pytest.mark.parametrize(
    ("count", "environ", "gpus"),
    [
        (0, {}, []),
        (2, {}, ["0", "1"]),
        (2, {"CUDA_VISIBLE_DEVICES": "1"}, ["1"]),
        (2, {"CUDA_VISIBLE_DEVICES": "1, 0"}, ["1", "0"]),
        (2, {"CUDA_VISIBLE_DEVICES": ""}, []),
        (2, {"CUDA_VISIBLE_DEVICES": "-1"}, []),
        (2, {"CUDA_VISIBLE_DEVICES": "0,7,1"}, ["0"]),
        (2, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, ["GPU-8932f937"]),
        (0, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, []),
    ],
)
def test_gpus_are_those_that_cuda_would_use(driver, count, environ, gpus):
    driver(count)
    assert visible_gpus(environ) == gpus


class NVMLError(Exception):
    pass


def nvml(*, count=None, broken=False):
    def init():
        if broken:
            raise NVMLError("driver not loaded")

    return SimpleNamespace(NVMLError=NVMLError, nvmlInit=init, nvmlDeviceGetCount=lambda: count, nvmlShutdown=lambda: None)


def test_nvml_counts_where_it_is_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(count=3))
    assert visible_gpus({}) == ["0", "1", "2"]


def test_nvml_without_a_driver_means_no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(broken=True))
    assert visible_gpus({}) == []
