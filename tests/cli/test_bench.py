"""`streamd bench`: JSON and tables on standard output, wrong options as sentences with exit code 64."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import av
import pytest
from support.measured import measured

from streamd import cli
from streamd.bench import pipeline, preprocess
from streamd.bench.clips import ClipSpec, make
from streamd.bench.usage import Usage


@pytest.fixture(scope="session", autouse=True)
def _imported_before():
    """The command imports torchvision, whose first import changes the environment: torch keeps its cache's folder there."""
    import streamd.bench.models  # noqa: F401


@pytest.fixture(scope="session")
def small_clip(tmp_path_factory):
    return make(ClipSpec(width=320, height=240, fps=10, seconds=1, gop=10, kbit_s=300), tmp_path_factory.mktemp("bench"))


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs `streamd bench ...`: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["streamd", "bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        return leaving.value.code or 0, *capsys.readouterr()

    return run


def test_decode_prints_one_json_object(run, small_clip):
    code, out, _ = run("decode", "--clip", small_clip, "--seconds", 1, "--streams", 2, "--workers", 1, "--device", "cpu", "--json")
    result = json.loads(out)
    assert code == 0
    assert (result["streams"], result["processes"]) == (2, 1)
    assert result["fps"] > 10
    assert {"cpu_ms_per_frame", "usage_cpu", "limit"} <= result.keys()


def test_preprocess_prints_one_json_object(run, monkeypatch):
    monkeypatch.setattr(preprocess, "_ROUNDS", 3)
    monkeypatch.setattr(preprocess, "_FRAMES", 2)
    code, out, _ = run("preprocess", "--size", "320x240", "--device", "cpu", "--json")
    assert code == 0
    assert json.loads(out).items() >= {"implementation": "torch", "width": 320, "height": 240, "device_us": None}.items()


def test_preprocess_prints_a_table(run, monkeypatch):
    monkeypatch.setattr(preprocess, "_ROUNDS", 3)
    monkeypatch.setattr(preprocess, "_FRAMES", 2)
    code, out, _ = run("preprocess", "--size", "320x240", "--device", "cpu")
    assert code == 0
    names = [line.rsplit(maxsplit=1)[0].strip() for line in out.splitlines()]
    assert names == ["implementation", "frames per launch", "width", "height", "host us"]


def test_pipeline_prints_one_json_object(run, small_clip, monkeypatch):
    monkeypatch.setattr(pipeline, "_SETTLE_S", 0.1)
    arguments = ["--clip", small_clip, "--model", "efficientnet-lite0", "--streams", 1, "--workers", 1, "--device", "cpu"]
    code, out, _ = run("pipeline", *arguments, "--seconds", 1, "--json")
    result = json.loads(out)
    assert code == 0
    assert (result["cameras"], result["workers"]) == (1, 1)
    assert result["published"] > 0
    assert result["limit"]


@pytest.mark.parametrize("options", [[], ["--decoder", "nvdec"], ["--decoder", "nvdec", "--once"], ["--decoder", "dali"]], ids=" ".join)
def test_pipeline_measures_the_decoder_of_choice_and_a_file_that_is_played_once_is_long_enough(run, small_clip, monkeypatch, options):
    decoder, once = (options or ["", "auto"])[1], options in (["--decoder", "nvdec", "--once"], ["--decoder", "dali"])

    async def load(setup, cameras, *, paced, seconds):
        assert (setup.decoder, setup.once, paced) == (decoder, once, False)
        assert frame_count(setup.clip) >= (pipeline.once_frames(2) if once else 10)
        return measured()

    monkeypatch.setattr(pipeline, "run", load)
    code, out, err = run("pipeline", "--clip", small_clip, "--device", "cpu", "--seconds", 2, *options, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["decoder"] == decoder


def frame_count(path):
    with av.open(path) as container:
        return container.streams.video[0].frames


def test_growth_prints_each_number_of_cameras_and_the_memory_of_a_further_one(run, small_clip, monkeypatch):
    async def load(setup, cameras, *, paced, seconds):
        return replace(measured(cameras=cameras), usage=Usage(cpu=0.1, decoder=0.1, gpu=0.1, gpu_memory_mb=1000.0 + 30 * cameras))

    monkeypatch.setattr(pipeline, "run", load)
    code, out, _ = run("growth", "--cameras", "1,4", "--clip", small_clip, "--device", "cpu", "--json")
    first, second, slope = map(json.loads, out.splitlines())
    assert code == 0
    assert (first["cameras"], second["cameras"], slope) == (1, 4, {"gpu_mb_per_camera": 30.0})


def test_model_prints_each_size_of_a_batch(run):
    code, out, _ = run("model", "--model", "squeezenet1_1", "--batches", "1,2", "--seconds", 0.1, "--device", "cpu", "--json")
    assert code == 0
    assert [json.loads(line)["batch"] for line in out.splitlines()] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["preprocess", "--size", "320"], "320 is no size; write an even width and height"),
        (["preprocess", "--size", "321x240"], "321x240 is no size"),
        (["preprocess", "--size", "0x240"], "0x240 is no size"),
        (["preprocess", "--device", "tpu"], "--device must be auto, cpu or cuda"),
        (["decode", "--size", "wide"], "wide is no size"),
        (["growth", "--cameras", "1,few"], "1,few is no list of numbers; write 1,2,4,8"),
        (["model", "--batches", "0"], "0 is no list of numbers; write 1,8,32"),
        (["decode", "--codec", "vp9"], "--codec must be h264 or hevc"),
        (["pipeline", "--size", "1x1"], "1x1 is no size"),
        (["pipeline", "--codec", "av1"], "--codec must be h264 or hevc"),
        (["pipeline", "--device", "tpu"], "--device must be auto, cpu or cuda"),
        (["pipeline", "--decoder", "vaapi"], "--decoder must be auto, nvdec, cpu or dali"),
        (["capacity", "--slo", "p95=100ms"], "p95=100ms is no promise; write p99=100ms"),
        (["capacity", "--slo", "p99=fast"], "p99=fast is no promise"),
        (["capacity", "--slo", "p99"], "p99 is no promise"),
        (["pipeline", "--seconds", "0"], "--seconds"),
    ],
    ids=lambda value: "-".join(value).replace("--", "") if isinstance(value, list) else "",
)
def test_a_wrong_option_is_a_sentence(arguments, sentence, run):
    code, out, err = run(*arguments)
    assert code == os.EX_USAGE
    assert out == ""
    assert sentence in " ".join(err.replace("│", " ").split())


def test_a_clip_that_is_not_there_is_no_traceback(run, tmp_path):
    code, out, err = run("decode", "--clip", tmp_path / "absent.mp4", "--seconds", 1, "--streams", 1, "--device", "cpu")
    assert (code, out) == (os.EX_SOFTWARE, "")
    assert "a decoding process ended early" in err


def test_a_model_that_does_not_exist_is_a_sentence(run, small_clip):
    code, out, err = run("pipeline", "--clip", small_clip, "--model", "resnet51", "--device", "cpu")
    assert (code, out) == (os.EX_SOFTWARE, "")
    assert err.startswith("resnet51 is no model to measure with")


def test_capacity_tells_each_step_and_prints_the_best(run, small_clip, monkeypatch):
    best = measured(usage=Usage(0.95, None, None, None))

    async def found(setup, *, slo, camera_fps, seconds, start, tell):
        assert (slo.percent, slo.within_ms, camera_fps, start) == (50, 80, 10, 4)
        tell(best, True)
        tell(replace(best, cameras=5), False)
        return 4, best

    monkeypatch.setattr(pipeline, "capacity", found)
    arguments = ["--clip", small_clip, "--model", "efficientnet-lite0", "--device", "cpu", "--slo", "p50=80ms", "--start", 4]
    code, out, err = run("capacity", *arguments, "--json")
    result = json.loads(out)
    assert code == 0
    assert (result["capacity_cameras"], result["slo"], result["limit"]) == (4, "p50=80ms", "the processors: 95% busy")
    assert err.splitlines() == ["4 cameras: fits (40.0 frames/s, p99 60.0 ms)", "5 cameras: too many (40.0 frames/s, p99 60.0 ms)"]


def test_where_not_one_camera_fits_capacity_says_so(run, small_clip, monkeypatch):
    async def found(setup, **options):
        return 0, None

    monkeypatch.setattr(pipeline, "capacity", found)
    code, out, err = run("capacity", "--clip", small_clip, "--model", "efficientnet-lite0", "--device", "cpu")
    assert (code, out, err.strip()) == (os.EX_UNAVAILABLE, "", "not one camera fits")
