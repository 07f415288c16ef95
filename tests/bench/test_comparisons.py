"""The programs that streamd is compared with run, as far as a CPU can; the figures mean nothing here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import av
import pytest
import torchvision  # noqa: F401 - changes the environment, which no test may

PROGRAMS = Path(__file__).parent / "comparisons"


@pytest.fixture(name="run")
def _run(monkeypatch):
    monkeypatch.syspath_prepend(str(PROGRAMS))
    before = set(sys.modules)
    import run

    yield run
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == PROGRAMS:
            del sys.modules[name]


@pytest.fixture(name="task")
def _task(run, small_clip):
    return run.Task(clip=str(small_clip), device="cpu", model="resnet18", seconds=0.1, warm_up_s=0, threads=2, batch=2)


def test_each_row_is_measured_in_a_process_of_its_own(small_clip, tmp_path):
    out = tmp_path / "out.json"
    options = ["--only", "article", "--clip", small_clip, "--device", "cpu", "--size", "320x240", "--quick"]
    ran = subprocess.run(
        [sys.executable, PROGRAMS / "run.py", out, *options, "--seconds", "0.2"], capture_output=True, text=True, check=False, timeout=100
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads(out.read_text())
    assert json.loads(ran.stdout) == result
    assert list(result["rows"]) == ["article"]
    article = result["rows"]["article"]
    assert min(article[f"{way}_ms"] for way in ("cpu_transforms", "dataloader", "streamd", "streamd_from_host")) > 0
    assert result["article_over_cpu"] == article["article_over_cpu"] > 0
    assert result["over_dali_reader"] is None


@pytest.mark.parametrize(
    ("row", "library"),
    [
        ("pyav_batches", "av"),
        ("opencv_loop", "cv2"),
        pytest.param("torchcodec_decoder", "torchcodec", marks=pytest.mark.comparison),
        pytest.param("inference_pipeline", "streamvision", marks=pytest.mark.comparison),
    ],
)
def test_a_program_of_another_library_classifies_frames(run, task, monkeypatch, row, library):
    monkeypatch.setenv("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH", ""))  # cv2 changes it
    pytest.importorskip(library)
    import importlib

    assert importlib.import_module(row).measure(task)["fps"] > 0


def test_what_cannot_run_here_says_why(run, task):
    assert run.figures("dali_reader", task)["skipped"] in {
        "ModuleNotFoundError: No module named 'nvidia.dali'",
        "DALI's video reader needs a GPU",
    }


def test_ratios_are_streamds_rate_over_theirs_and_none_for_what_did_not_run(run):
    found = {
        "streamd": {"fps": 500.0},
        "opencv_loop": {"fps": 40.0},
        "dali_reader": {"skipped": "missing"},
        "article": {"article_over_cpu": 60.0},
    }
    ratios = run.ratios(found)
    assert (ratios["over_opencv_loop"], ratios["over_dali_reader"], ratios["article_over_cpu"]) == (12.5, None, 60.0)
    assert set(run.ratios({}).values()) == {None}


def test_the_long_clip_has_all_pictures_of_each_round(run, small_clip, tmp_path):
    run.repeat(small_clip, tmp_path / "long.mp4", seconds=5)
    with av.open(str(tmp_path / "long.mp4")) as container:
        times = [frame.time for frame in container.decode(video=0)]
    assert times == pytest.approx([number / 10 for number in range(60)])


def test_torchs_operators_prepare_a_picture_as_its_transforms_do(run):
    import common
    import torch
    from PIL import Image

    noise = torch.randint(0, 256, (8, 12, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    picture = Image.fromarray(noise.numpy()).resize((640, 360), Image.Resampling.BICUBIC)
    wanted = common.picture_transforms()(picture)
    pictures = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(1, 360, 640, 3).permute(0, 3, 1, 2)
    got = common.TensorTransforms("cpu", torch.float32)(pictures)[0]
    assert got.shape == wanted.shape
    assert (got - wanted).abs().max() < 0.03  # a level of 255 is 0.017


def test_a_measurement_in_which_nothing_is_classified_fails(run, task):
    import common

    with pytest.raises(RuntimeError, match="no frame was classified"):
        common.frames_per_second(lambda count: count.over.wait(), task, threads=1, patience_s=0.01)


def test_an_error_in_a_thread_ends_the_measurement(run, task):
    import common

    def work(count):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        common.frames_per_second(work, task, threads=2)


def test_the_fastest_setting_counts_and_a_setting_that_fails_is_told(run):
    import common

    def fail():
        raise OSError("no decoder")

    assert common.best({"1": lambda: 10.0, "2": lambda: 30.0}, batch=4) == {"fps": 30.0, "by_setting": {"1": 10.0, "2": 30.0}, "batch": 4}
    assert common.best({"1": lambda: 10.0, "2": fail}) == {"fps": 10.0, "by_setting": {"1": 10.0}, "failed": {"2": "OSError: no decoder"}}
    with pytest.raises(RuntimeError, match="no decoder"):
        common.best({"2": fail})
