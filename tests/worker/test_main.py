"""The life cycle of a worker, clause by clause as it stands at the top of streamd/worker/main.py, over the real channel."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.wait import wait_until
from torchvision.models import squeezenet1_1

from streamd.config.redaction import reveal
from streamd.config.types import Config
from streamd.engine.runner import CpuRunner
from streamd.worker import main as module
from streamd.worker.protocol import Changed, Counts, Failed, Ready, Released, Stop, Update

EX_UNAVAILABLE, EX_SOFTWARE = 69, 70


def paced(clip):
    """A file that runs like a camera, for ever, at four frames a second."""
    return {"url": str(clip(".mp4", frames=50)), "realtime": True, "loop": True, "fps": 4, "max_age": 10}


def phases(messages, camera="door"):
    return [str(one.state.phase) for one in messages if isinstance(one, Changed) and one.state.camera == camera]


def is_phase(phase):
    return lambda message: isinstance(message, Changed) and message.state.phase == phase


# 1


def test_ready_comes_before_any_camera(serve, clip, tmp_path):
    with serve({"door": paced(clip), "yard": paced(clip)}, jsonl=tmp_path / "results") as worker:
        worker.wait_for(is_phase("up"))
        worker.wait_for(is_phase("up"))
        worker.stop(5)
    kinds = [type(message) for message in worker.messages]
    assert kinds.index(Ready) < kinds.index(Changed)
    assert worker.first(Ready).device == "cpu"
    assert phases(worker.messages, "door")[:2] == phases(worker.messages, "yard")[:2] == ["connecting", "up"]


def test_what_is_not_start_is_not_understood(serve):
    with serve(None) as worker:
        worker.send(Stop(timeout_s=1))
    assert worker.code == EX_SOFTWARE


# 2, 3, 7: one process for them all


@pytest.fixture(scope="module")
def life(tmp_path_factory, clip, new_process):
    """A worker's whole life, with signals in between."""
    folder = tmp_path_factory.mktemp("life")
    worker = new_process(folder)
    worker.start({"door": paced(clip), "file": {"url": str(clip(".mp4", frames=12, b_frames=2))}}, jsonl=folder / "results")
    worker.wait_for(Ready)
    os.kill(worker.process.pid, signal.SIGTERM)
    os.kill(worker.process.pid, signal.SIGINT)
    signalled = time.monotonic()
    worker.wait_for(is_phase("ended"))
    for _ in range(2):
        worker.wait_for(Counts)
    worker.wait_for(lambda message: isinstance(message, Counts) and message.ledgers["door"].published >= 4)
    asked = time.monotonic()
    worker.send(Stop(8.0))
    worker.rest()
    worker.exit_code()
    worker.stopped_after_s = time.monotonic() - asked
    worker.counts_after_signals = sum(isinstance(message, Counts) and at > signalled + 0.5 for at, message in worker.timed)
    worker.results = [json.loads(line) for line in (folder / "results").read_text().splitlines()]
    return worker


def test_counts_come_each_second(life):
    times = [at for at, message in life.timed if isinstance(message, Counts)]
    assert len(times) >= 3
    gaps = [after - before for before, after in pairwise(times[:-1])]  # the last one comes with the end
    assert all(0.5 < gap < 3 for gap in gaps), gaps


def test_counts_never_lose_a_frame(life):
    for message in life.messages:
        if isinstance(message, Counts):
            for ledger in message.ledgers.values():
                assert ledger.in_flight >= 0
                assert ledger.received >= ledger.decoded


def test_stop_lets_what_was_received_go_through(life):
    last = life.messages[-1]
    assert isinstance(last, Counts)
    assert last.sink_queue == 0
    for camera in ("door", "file"):
        ledger = last.ledgers[camera]
        assert ledger.in_flight == 0
        assert ledger.published == sum(result["camera"] == camera for result in life.results)
        assert set(ledger.dropped) <= {"sampled_out"}
    assert last.ledgers["file"].published == 12
    assert phases(life.messages)[-1] == "stopped"
    assert phases(life.messages, "file") == ["connecting", "up", "ended"]


def test_stop_ends_the_process_with_0_in_time(life):
    assert life.exit_code() == 0
    assert life.stopped_after_s < 8


def test_sigterm_and_sigint_are_ignored(life):
    assert life.counts_after_signals >= 1
    assert life.exit_code() == 0


def test_nothing_but_results_goes_to_standard_output(life):
    assert life.process.stdout.read() == b""


def test_stop_keeps_its_time_when_redis_is_away(serve, clip, tmp_path):
    with serve({"door": paced(clip)}, redis={"url": "redis://127.0.0.1:1/0"}, jsonl=tmp_path / "results") as worker:
        worker.wait_for(is_phase("up"))
        worker.wait_for(lambda message: isinstance(message, Counts) and message.sink_queue > 0)
        begin = time.monotonic()
        worker.stop(1.5)
    assert time.monotonic() - begin < 2.5
    assert worker.code == 0
    assert worker.messages[-1].sink_queue > 0


# 4


def test_a_worker_whose_channel_ends_exits_at_once(new_worker, clip, tmp_path):
    worker = new_worker()
    worker.start({"door": paced(clip)}, jsonl=tmp_path / "results")
    worker.wait_for(is_phase("up"))
    worker.hang_up()
    assert worker.exit_code(3) == EX_SOFTWARE


def test_a_worker_whose_channel_ends_does_not_finish_loading_its_models(new_worker, clip, tmp_path):
    weights, labels = tmp_path / "weights.safetensors", tmp_path / "labels.txt"
    save_file(squeezenet1_1(weights=None, num_classes=2).state_dict(), weights)
    os.mkfifo(labels)
    worker = new_worker()
    models = {"slow": {"torchvision": "squeezenet1_1", "weights_file": str(weights), "labels_file": str(labels)}}
    worker.start({"door": paced(clip)}, models=models)
    with labels.open("w"):  # returns when the worker reads its labels, which then do not come
        worker.hang_up()
        assert worker.exit_code(3) == EX_SOFTWARE


_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "streamd.worker", sys.argv[1]], pass_fds=[int(sys.argv[1])])
print(child.pid, flush=True)
child.wait()
"""


def test_a_worker_whose_daemon_is_killed_goes_although_the_channel_is_open(new_worker, clip, tmp_path):
    worker = new_worker(argv=[sys.executable, "-c", _PARENT])
    pid = int(worker.process.stdout.readline())
    worker.start({"door": paced(clip)}, jsonl=tmp_path / "results")
    worker.wait_for(Ready)
    worker.process.kill()
    wait_until(lambda: not _is_alive(pid), what="the worker is gone")


def _is_alive(pid):
    """A zombie that init has not collected yet is gone too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# 5


def test_an_engine_that_fails_publishes_nothing_more_and_says_why(serve, clip, tmp_path, monkeypatch):
    launch, batches = CpuRunner.launch, []

    def fail_later(self, batch):
        batches.append(batch)
        if len(batches) == 3:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return launch(self, batch)

    monkeypatch.setattr(CpuRunner, "launch", fail_later)
    with serve({"door": paced(clip)}, jsonl=tmp_path / "results") as worker:
        worker.wait_for(Failed)
    assert worker.code == EX_SOFTWARE
    failed = worker.first(Failed)
    assert failed.retry
    assert "illegal memory access" in failed.message
    published = len((tmp_path / "results").read_text().splitlines())
    assert published <= sum(len(batch.samples) for batch in batches[:2])


# 6


def test_a_model_that_is_not_to_be_had_ends_the_process_for_good(serve, clip, tmp_path):
    models = {"own": {"torchvision": "resnet18", "weights_file": str(tmp_path / "absent.safetensors")}}
    with serve({"door": paced(clip)}, models=models) as worker:
        worker.rest()
    (failed,) = worker.messages
    assert not failed.retry
    assert re.search(r"models\.own\.weights_file: .*absent\.safetensors is not there", failed.message)
    assert worker.code == EX_UNAVAILABLE


def test_a_gpu_that_is_not_there_ends_the_process_for_good(serve, clip, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with serve({"door": paced(clip)}, engine={"device": "cuda"}) as worker:
        worker.wait_for(Failed)
    (failed,) = worker.messages
    assert not failed.retry
    assert "nvidia-smi" in failed.message
    assert worker.code == EX_UNAVAILABLE


# 8


def test_an_update_starts_changes_and_releases_cameras_and_leaves_the_others_alone(serve, clip, tmp_path):
    first, results = {name: paced(clip) for name in ("door", "yard", "hall")}, tmp_path / "results"
    with serve(first, jsonl=results) as worker:
        for _ in first:
            worker.wait_for(is_phase("up"))
        # The configuration as Start brings it, with a new camera and a changed one, and without the third.
        config = start_config({"door": first["door"], "yard": {**first["yard"], "fps": 2}, "gate": paced(clip)}, results)
        worker.send(Update(config=config, cameras=list(config["cameras"])))
        seen = [worker.wait_for(lambda one: isinstance(one, Released) or is_phase("up")(one)) for _ in range(3)]
        worker.stop(5)
    assert [one.camera for one in seen if isinstance(one, Released)] == ["hall"]
    assert phases(worker.messages, "door") == ["connecting", "up", "stopped"]
    assert phases(worker.messages, "yard") == ["connecting", "up", "stopped", "connecting", "up", "stopped"]
    assert phases(worker.messages, "hall") == ["connecting", "up", "stopped"]
    assert phases(worker.messages, "gate") == ["connecting", "up", "stopped"]


def start_config(cameras, results):
    models = {"imagenet": {"builtin": "efficientnet-lite0"}}
    engine = {"device": "cpu", "max_batch": 8}
    given = {"redis": None, "jsonl": {"path": str(results)}, "models": models, "engine": engine, "cameras": cameras}
    return reveal(Config.model_validate(given))


# The numbers above are the contract's.


def test_every_clause_has_its_tests():
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", module.__doc__, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    headings = re.findall(r"^# ((?:\d+(?:, )?)+)", Path(__file__).read_text(), re.MULTILINE)
    assert sorted({int(number) for heading in headings for number in heading.split(",") if number.strip()}) == numbers
