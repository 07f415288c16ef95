"""What `summary.json` is made of."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("gpu_report", Path(__file__).with_name("report.py"))
assert SPEC is not None
report = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(report)

KEYS = {
    "device",
    "date",
    "commit",
    "pipeline_over_decode_h264",
    "pipeline_over_decode_hevc",
    "cpu_ms_per_frame",
    "gpu_mb_per_camera",
    "capacity_cameras_1080p30",
    "capacity_p99_ms",
    "half_load_p50_ms",
    "half_load_p99_ms",
    "overload_p99_ms",
    "overload_jain",
    "rtsp_cameras",
    "rtsp_lost_packets",
    "keyframe_cameras",
    "fused_kernel_us",
    "top1_agreement",
    "over_opencv_loop",
    "over_dali_reader",
    "article_over_cpu",
}


def step(date="2030-01-02", **keys):
    return {"date": date, "device": "a GPU", "commit": "c0ffee"} | {key: {"results": rows} for key, rows in keys.items()}


def test_what_has_not_run_is_null():
    assert report.summarize({}) == dict.fromkeys(KEYS)


def test_figures_come_from_their_steps():
    found = report.summarize(
        {
            "ceilings": step(
                preprocess_1080p=[
                    {"implementation": "fused", "frames_per_launch": 1, "device_us": 22.0},
                    {"implementation": "fused", "frames_per_launch": 32, "device_us": 4.5},
                    {"implementation": "torch", "frames_per_launch": 1, "device_us": 300.0},
                ],
                decode_h264=[{"fps": 4000.0}],
                pipeline_h264=[{"fps": 3900.0, "cpu_ms_per_frame": 0.5}],
                decode_hevc=[],
                pipeline_hevc=[{"fps": 8000.0}],
            ),
            "growth": step(
                date="2030-01-03",
                growth=[{"cameras": 1, "p50_ms": 5.0}, {"cameras": 84, "p50_ms": 8.0, "p99_ms": 20.0}, {"gpu_mb_per_camera": 30.5}],
            ),
            "overload": step(overload=[{"p99_ms": 400.0, "jain": 0.99}]),
        }
    )
    assert found.keys() == KEYS
    assert {key: value for key, value in found.items() if value is not None} == {
        "device": "a GPU",
        "date": "2030-01-03",
        "commit": "c0ffee",
        "pipeline_over_decode_h264": 0.975,
        "cpu_ms_per_frame": 0.5,
        "gpu_mb_per_camera": 30.5,
        "half_load_p50_ms": 8.0,
        "half_load_p99_ms": 20.0,
        "overload_p99_ms": 400.0,
        "overload_jain": 0.99,
        "fused_kernel_us": 4.5,
    }


def test_a_step_that_breaks_off_keeps_what_it_had(monkeypatch):
    good = (sys.executable, "-c", "import sys, json; print('noise'); print(json.dumps({{'said': sys.argv[1:]}}))", "{twice}")
    bad = (sys.executable, "-c", "import sys; sys.exit('no decoder')")
    monkeypatch.setitem(report.STEPS, "probe", {"good": good, "bad": bad})
    kept = []
    result = report._step("probe", cameras=7, more=["x"], keep=lambda so_far: kept.append(json.loads(json.dumps(so_far))))
    assert result["good"]["results"] == [{"said": ["14", "x"]}]
    assert (result["bad"]["exit_code"], result["bad"]["said"]) == (1, ["no decoder"])
    assert result["is_good"] is False
    assert kept[-1]["good"] == result["good"]
    assert "bad" not in kept[-1]


@pytest.mark.parametrize("step", list(report.STEPS))
def test_every_command_of_a_step_exists(step):
    for command in report.STEPS[step].values():
        if command[1].endswith(".py"):
            assert (report.ROOT / command[1]).is_file()
        else:
            from streamd.cli.bench import bench

            assert command[4] in {each.callback.__name__ for each in bench.registered_commands}
