"""Cameras to workers, and the GPUs that may be used."""

import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.config.types import CameraConfig, Config
from streamd.daemon import placement as module
from streamd.daemon.placement import Gpu, frames_per_s, place, visible_gpus
from streamd.errors import ConfigError

LIVE = {"url": "rtsp://192.0.2.1/1"}
KEYFRAMES = LIVE | {"decode": "keyframes"}
FILE = {"url": "clip.mp4"}
TWO = [Gpu("0", "GPU-aaaa-1"), Gpu("1", "GPU-bbbb-2")]


def config(*cameras, **engine):
    """Cameras c0, c1, …, of the keys that are given."""
    return Config.model_validate(
        {
            "models": {"m": {"torchvision": "resnet50"}},
            "engine": engine,
            "cameras": {f"c{number}": camera for number, camera in enumerate(cameras)},
        }
    )


def gpus(count):
    return [Gpu(str(number), f"GPU-{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("cameras", "engine", "count", "workers"),
    [
        ([LIVE] * 9, {}, 0, 1),
        ([LIVE] * 9, {}, 1, 1),
        ([LIVE] * 33, {}, 1, 1),
        ([LIVE] * 34, {}, 1, 2),
        ([LIVE] * 100, {}, 1, 3),
        ([LIVE] * 160, {}, 1, 4),
        ([LIVE] * 400, {}, 1, 4),
        ([LIVE] * 160, {}, 2, 6),
        ([LIVE] * 9, {}, 2, 2),
        ([LIVE], {}, 2, 1),
        ([KEYFRAMES] * 200, {}, 1, 1),
        ([KEYFRAMES] * 1500, {}, 1, 4),
        ([FILE], {}, 1, 1),
        ([FILE] * 2, {}, 1, 2),
        ([FILE] * 32, {}, 1, 4),
        ([FILE] * 32, {"device": "cpu"}, 1, 1),
        ([LIVE] * 160, {"device": "cuda"}, 0, 1),
        ([LIVE] * 9, {"workers": 2}, 1, 2),
        ([LIVE] * 9, {"workers": 3, "device": "cpu"}, 1, 3),
        ([LIVE], {"workers": 5}, 1, 1),
        ([LIVE] * 9, {"workers": 1}, 2, 1),
        ([LIVE] * 9, {"workers": 5}, 2, 5),
    ],
)
def test_the_number_of_workers_follows_the_load_and_the_gpus_and_never_exceeds_the_cameras(cameras, engine, count, workers):
    assert len(place(config(*cameras, **engine), gpus=gpus(count))) == workers


def test_only_what_is_decoded_costs():
    cost = {name: frames_per_s(CameraConfig.model_validate(keys)) for name, keys in {"all": LIVE, "keys": KEYFRAMES, "file": FILE}.items()}
    assert cost["keys"] < cost["all"] / 5
    assert cost["file"] > cost["all"]
    assert frames_per_s(CameraConfig.model_validate(LIVE | {"fps": 1})) == cost["all"]
    assert frames_per_s(CameraConfig.model_validate(FILE | {"realtime": True})) == cost["all"]


_KINDS = st.sampled_from([LIVE, KEYFRAMES, FILE])


@settings(deadline=None)
@given(st.data(), st.lists(_KINDS, min_size=1, max_size=50), st.integers(1, 20) | st.just("auto"), st.integers(0, 3))
def test_every_camera_has_one_worker_on_its_own_gpu_and_no_worker_has_much_more_than_the_others(data, kinds, workers, count):
    pins = [data.draw(st.none() | st.integers(0, count - 1)) if count else None for _ in kinds]
    asked = config(*({**kind, "gpu": pin} for kind, pin in zip(kinds, pins, strict=True)), workers=workers)
    placements = place(asked, gpus=gpus(count))
    assert sorted(camera for placement in placements for camera in placement.cameras) == sorted(asked.cameras)
    assert [placement.worker for placement in placements] == [f"w{number}" for number in range(len(placements))]
    assert all(placement.cameras for placement in placements)
    on = {camera: placement.gpu for placement in placements for camera in placement.cameras}
    if count > 1:
        assert all(pin is None or on[f"c{number}"] == str(pin) for number, pin in enumerate(pins))
    loads = {name: frames_per_s(camera) for name, camera in asked.cameras.items()}
    for gpu in set(on.values()):
        totals = [sum(loads[name] for name in placement.cameras) for placement in placements if placement.gpu == gpu]
        assert max(totals) - min(totals) <= max(loads.values())


def test_cameras_are_spread_over_the_gpus_and_key_frames_fill_the_gaps():
    placements = place(config(*[LIVE] * 3, *[KEYFRAMES] * 6), gpus=TWO)
    assert [placement.gpu for placement in placements] == ["0", "1"]
    assert [[sum(name < "c3" for name in placement.cameras), len(placement.cameras)] for placement in placements] == [[2, 2], [1, 7]]


def test_a_camera_that_names_a_gpu_is_there_and_others_make_room():
    placements = place(config({**LIVE, "gpu": 1}, {**LIVE, "gpu": "GPU-bbbb-2"}, LIVE, LIVE), gpus=TWO)
    assert {placement.gpu: placement.cameras for placement in placements} == {"1": ("c0", "c1"), "0": ("c2", "c3")}


def test_a_gpu_that_a_camera_names_has_a_worker_however_few_were_asked_for():
    placements = place(config({**LIVE, "gpu": 1}, LIVE, workers=1), gpus=TWO)
    assert [(placement.gpu, placement.cameras) for placement in placements] == [("1", ("c0", "c1"))]
    placements = place(config({**LIVE, "gpu": 1}, {**LIVE, "gpu": 0}, workers=1), gpus=TWO)
    assert {(placement.gpu, placement.cameras) for placement in placements} == {("1", ("c0",)), ("0", ("c1",))}


def test_with_one_gpu_there_is_no_choice_to_make():
    placements = place(config(LIVE, {**LIVE, "gpu": 0}, workers=2), gpus=gpus(1))
    assert [placement.gpu for placement in placements] == [None, None]


@pytest.mark.parametrize(
    ("pin", "there", "message"),
    [
        (2, TWO, "camera c1: gpu: there is no GPU 2; there are 0 (GPU-aaaa-1), 1 (GPU-bbbb-2)"),
        ("GPU-cccc", TWO, "camera c1: gpu: there is no GPU GPU-cccc; there are 0 (GPU-aaaa-1), 1 (GPU-bbbb-2)"),
        ("GPU-aaaa", [Gpu("GPU-aaaa-1"), Gpu("GPU-aaaa-2")], "GPU-aaaa may mean several GPUs; there are GPU-aaaa-1, GPU-aaaa-2"),
        (0, [], "camera c1: gpu: there is no GPU 0; none can be used here"),
    ],
)
def test_a_gpu_that_is_not_there_is_an_error_that_names_the_camera(pin, there, message):
    with pytest.raises(ConfigError) as failed:
        place(config(LIVE, {**LIVE, "gpu": pin}), gpus=there)
    assert message in str(failed.value)


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """Sets how many GPUs the driver lists, NVML being absent."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    def lists(count):
        for number in range(count):
            folder = tmp_path / f"0000:0{number}:00.0"
            folder.mkdir()
            (folder / "information").write_text(f"Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-8932f93{number}-d72c\nBus Type: \t PCIe\n")
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
    assert [gpu.name for gpu in visible_gpus(environ)] == gpus


def test_an_index_and_a_uuid_mean_the_same_gpu(driver):
    driver(2)
    whole = [Gpu("0", "GPU-8932f930-d72c"), Gpu("1", "GPU-8932f931-d72c")]
    assert visible_gpus({}) == whole
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-8932f931"}) == [Gpu("GPU-8932f931", "GPU-8932f931-d72c")]
    assert [[gpu.is_called(name) for gpu in whole] for name in ("1", "GPU-8932f931", "GPU-8932f93", "2")] == [
        [False, True],
        [False, True],
        [True, True],
        [False, False],
    ]


class NVMLError(Exception):
    pass


def nvml(*uuids, broken=False):
    def init():
        if broken:
            raise NVMLError("driver not loaded")

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=init,
        nvmlDeviceGetCount=lambda: len(uuids),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda index: uuids[index],
        nvmlShutdown=lambda: None,
    )


def test_nvml_lists_them_where_it_is_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml("GPU-a", "GPU-b"))
    assert visible_gpus({}) == [Gpu("0", "GPU-a"), Gpu("1", "GPU-b")]


def test_nvml_without_a_driver_means_no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(broken=True))
    assert visible_gpus({}) == []
