"""What a worker does between its cameras and its sinks: results, their books, and the end. Real files, a real Redis, EfficientNet-lite0."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
import torch
from support.clips import decoded
from support.wait import wait_until_async
from torchvision.transforms import InterpolationMode, functional

from streamd import models
from streamd.config.types import Config, ModelConfig
from streamd.errors import DeviceError, ModelError
from streamd.records import Outcome
from streamd.types import DropReason
from streamd.worker.worker import Worker


@pytest.fixture
async def new_worker(tmp_path):
    """Loads and starts a worker; what it tells of its cameras is in `changes`."""
    made = []

    async def new(cameras, *, named=None, engine=None, start=True, **sinks):
        config = Config.model_validate(
            {
                "redis": None,
                **(sinks or {"jsonl": {"path": str(tmp_path / "results")}}),
                "models": named or {"imagenet": {"builtin": "efficientnet-lite0"}},
                "engine": {"device": "cpu", "max_batch": 8, **(engine or {})},
                "cameras": cameras,
            }
        )
        changes, failures = [], []
        worker = Worker(config, list(cameras), workers=1, on_change=changes.append, on_failure=lambda: failures.append(worker.failure))
        worker.changes, worker.failures = changes, failures
        await worker.load()
        made.append(worker)
        if start:
            worker.start()
        return worker

    yield new
    for worker in made:
        await worker.stop(deadline_s=time.monotonic() + 5)
        await asyncio.to_thread(worker._pool.stop, timeout_s=5)
        await asyncio.to_thread(worker._engine.stop)
    await asyncio.get_running_loop().shutdown_default_executor()
    for worker in made:
        assert worker.failures == []


def results(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def done(worker, *cameras):
    def phases():
        return {change.state.camera: change.state.phase for change in worker.changes}

    await wait_until_async(lambda: all(phases().get(camera) == "ended" for camera in cameras), timeout_s=30, what=f"all ended: {phases()}")


async def test_each_frame_of_each_file_becomes_one_result(new_worker, clip, tmp_path):
    worker = await new_worker({name: {"url": str(clip(".mp4", frames=count, b_frames=1))} for name, count in (("a", 5), ("b", 11))})
    await done(worker, "a", "b")
    for name, count in (("a", 5), ("b", 11)):
        own = [result for result in results(tmp_path / "results") if result["camera"] == name]
        assert sorted(result["sequence"] for result in own) == list(range(count))
        assert {result["model"] for result in own} == {"imagenet"}
        assert {result["dropped"] for result in own} == {0}
        assert all(len(result["labels"]) == 5 for result in own)
        ledger = worker.counts().ledgers[name]
        assert (ledger.received, ledger.decoded, ledger.published, ledger.dropped) == (count, count, count, {})


async def test_the_stages_of_a_result_add_up(new_worker, clip, tmp_path):
    worker = await new_worker({"door": {"url": str(clip(".mp4", frames=5))}})
    await done(worker, "door")
    for result in results(tmp_path / "results"):
        latency = result["latency_ms"]
        assert sum(latency[stage] for stage in ("decode", "preprocess", "batch", "infer")) == pytest.approx(latency["total"], abs=0.01)
        assert abs(result["captured_ms"] - time.time() * 1000) < 60_000
    assert sum(worker.counts().latency) == 5


async def test_a_camera_gets_the_model_that_it_names(new_worker, clip, tmp_path):
    named = {"all": {"builtin": "efficientnet-lite0", "top_k": 2}, "sure": {"builtin": "efficientnet-lite0", "min_confidence": 1.0}}
    url = str(clip(".mp4", frames=3))
    worker = await new_worker({"a": {"url": url, "model": "all"}, "b": {"url": url, "model": "sure"}, "c": {"url": url}}, named=named)
    await done(worker, "a", "b", "c")
    by_camera = {camera: [result for result in results(tmp_path / "results") if result["camera"] == camera] for camera in "abc"}
    assert {len(result["labels"]) for result in by_camera["a"] + by_camera["c"]} == {2}
    assert {result["outcome"] for result in by_camera["b"]} == {Outcome.NO_CONFIDENT_LABEL}
    assert {result["model"] for result in by_camera["c"]} == {"all"}


async def test_labels_are_those_of_the_model_for_the_same_picture(new_worker, clip, tmp_path):
    """The whole way from file to label, against the model called by hand with torchvision's own transforms."""
    path = clip(".mp4", frames=3)
    worker = await new_worker({"door": {"url": str(path)}})
    await done(worker, "door")
    model = models.load("imagenet", ModelConfig(builtin="efficientnet-lite0"), device="cpu")
    for result, picture in zip(sorted(results(tmp_path / "results"), key=lambda one: one["sequence"]), decoded(path), strict=True):
        image = functional.resize(torch.from_numpy(picture).permute(2, 0, 1), 256, InterpolationMode.BICUBIC, antialias=True)
        batch = functional.normalize(functional.center_crop(image, 224).float() / 255, model.input.mean, model.input.std)[None]
        with torch.inference_mode():
            expected = model.module(batch).softmax(1)[0]
        for label in result["labels"]:
            assert label["label"] == model.labels[label["index"]]
            assert label["score"] == pytest.approx(float(expected[label["index"]]), abs=0.01)
        assert float(expected[result["labels"][0]["index"]]) > float(expected.max()) - 0.01


async def test_a_result_that_redis_gets_is_published_when_redis_has_it(new_worker, clip, redis_server):
    worker = await new_worker({"door": {"url": str(clip(".mp4", frames=5))}}, redis={"url": redis_server.url})
    await done(worker, "door")
    assert redis_server.client().xlen("streamd:results:door") == worker.counts().ledgers["door"].published == 5


async def test_what_no_sink_takes_is_booked_and_reported_with_the_next_result(new_worker, clip, own_redis):
    own_redis.kill()
    url = str(clip(".mp4", frames=12))
    worker = await new_worker({"door": {"url": url}}, redis={"url": own_redis.url, "max_queue": 4}, engine={"max_batch": 1})
    await wait_until_async(lambda: worker.counts().ledgers["door"].dropped.get(DropReason.SINK_FULL) == 8, what="eight given up")
    assert worker.counts().ledgers["door"].in_flight == worker.counts().sink_queue == 4
    own_redis.start()
    await done(worker, "door")
    assert worker.counts().ledgers["door"].published == 4
    entries = own_redis.client().xrange("streamd:results:door")
    kept = [json.loads(fields["data"]) for _, fields in entries]
    assert [result["sequence"] for result in kept] == [8, 9, 10, 11]
    assert sum(result["dropped"] for result in kept) > 0


async def test_stop_goes_within_its_deadline_although_a_file_is_not_through(new_worker, clip, tmp_path):
    worker = await new_worker({"door": {"url": str(clip(".mp4", frames=200))}})
    await wait_until_async(lambda: worker.counts().ledgers["door"].published > 0, what="a result")
    begin = time.monotonic()
    await worker.stop(deadline_s=begin + 1.5)
    assert time.monotonic() - begin < 2.5
    ledger = worker.counts().ledgers["door"]
    assert ledger.in_flight >= 0
    assert ledger.dropped[DropReason.SHUTDOWN] > 0
    assert ledger.published == len(results(tmp_path / "results"))


async def test_a_model_that_cannot_be_loaded_is_an_error(new_worker, clip, tmp_path):
    named = {"own": {"torchvision": "resnet18", "weights_file": str(tmp_path / "absent.pth")}}
    with pytest.raises(ModelError, match=r"models\.own\.weights_file"):
        await new_worker({"door": {"url": str(clip(".mp4"))}}, named=named)


async def test_models_that_no_camera_of_the_worker_names_are_not_loaded(new_worker, clip, tmp_path):
    named = {"imagenet": {"builtin": "efficientnet-lite0"}, "absent": {"torchvision": "resnet18", "weights_file": str(tmp_path / "no.pth")}}
    worker = await new_worker({"door": {"url": str(clip(".mp4", frames=2)), "model": "imagenet"}}, named=named)
    await done(worker, "door")


async def test_a_gpu_that_is_not_there_is_an_error(new_worker, clip, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DeviceError, match="nvidia-smi"):
        await new_worker({"door": {"url": str(clip(".mp4"))}}, engine={"device": "cuda"})


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(("cpu", ".mkv", {"codec": "vp9"}), marks=pytest.mark.comparison),
        pytest.param(("cuda", ".mp4", {"codec": "h264", "b_frames": 2}), marks=pytest.mark.gpu),
        pytest.param(("cuda", ".mp4", {"codec": "hevc", "b_frames": 2}), marks=pytest.mark.gpu),
        pytest.param(("cuda", ".mp4", {"codec": "h264", "size": (1920, 1080), "matrix": "bt709"}), marks=pytest.mark.gpu),
    ],
    ids=["vp9 on the CPU", "H.264", "HEVC", "1080p"],
)
async def test_a_file_through_dali_has_the_results_of_the_other_decoder(new_worker, clip, tmp_path, monkeypatch, case):
    pytest.importorskip("nvidia.dali")
    device, suffix, options = case
    other = {"cpu": "cpu", "cuda": "nvdec"}[device]
    if device == "cpu":
        monkeypatch.setattr("streamd.decoders.dali.refusal", lambda info, device: None)
    url = str(clip(suffix, frames=60, **options))
    cameras = {name: {"url": url, "decoder": decoder} for name, decoder in (("dali", "dali"), ("also", "dali"), ("other", other))}
    worker = await new_worker(cameras, engine={"device": device})
    await done(worker, *cameras)
    assert {change.state.camera: change.state.decoder for change in worker.changes if change.state.phase == "up"} == {
        name: camera["decoder"] for name, camera in cameras.items()
    }
    own = {name: [result for result in results(tmp_path / "results") if result["camera"] == name] for name in cameras}
    shown = [result["pts"] for result in own["other"]]
    for name in ("dali", "also"):
        assert [result["pts"] for result in own[name]] == shown == sorted(set(shown))
        assert len(shown) == 60
        same = [ours["labels"][0]["index"] == theirs["labels"][0]["index"] for ours, theirs in zip(own[name], own["other"], strict=True)]
        assert sum(same) >= 57, "of 60; classes whose scores are nearly equal may change places"
        ledger = worker.counts().ledgers[name]
        assert (ledger.received, ledger.decoded, ledger.published, ledger.dropped) == (60, 60, 60, {})
