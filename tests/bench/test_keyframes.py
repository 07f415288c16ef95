"""Key frames of many cameras end to end, and what counts as a picture of another camera."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from support.frames import packets_of
from support.measured import IDLE

from streamd import cli
from streamd.bench import identity, keyframes
from streamd.bench.clips import ClipSpec
from streamd.bench.keyframes import KeyframesResult
from streamd.records import Label, Latency, Outcome, Result

SMALL = tuple(
    ClipSpec(codec=codec, width=width, height=height, fps=30, seconds=1, gop=30, b_frames=b_frames)
    for codec, width, height, b_frames in (("h264", 320, 240, 0), ("h264", 320, 238, 2), ("hevc", 320, 240, 0))
)


def result(camera: str, *indices: int) -> Result:
    labels = [Label(label=str(index), index=index, score=1.0) for index in indices]
    latency = Latency(decode=1, preprocess=1, batch=1, infer=1, total=4)
    fields = {"session": "s", "sequence": 0, "captured_ms": 0, "pts": 0, "time_base": "1/30", "model": "identity", "dropped": 0}
    return Result(camera=camera, outcome=Outcome.LABEL, labels=labels, latency_ms=latency, **fields)


@pytest.mark.parametrize(
    ("camera", "labels", "is_own"), [("bench-7", [7], True), ("bench-263", [7], True), ("bench-8", [7], False), ("bench-7", [], False)]
)
def test_a_result_shows_its_own_camera_when_its_label_is_the_cameras_number(camera, labels, is_own):
    assert keyframes.shows_itself(result(camera, *labels), numbers=256) is is_own


def test_key_frames_that_are_missing_between_results_are_lost():
    assert keyframes.lost([60, 0, 30]) == 0
    assert keyframes.lost([300]) == 0
    assert keyframes.lost([0, 30, 120]) == 2


@pytest.mark.parametrize(
    ("change", "is_proof"),
    [({}, True), ({"results": 0}, False), ({"wrong_labels": 1}, False), ({"lost_key_frames": 1}, False), ({"silent_cameras": 1}, False)],
)
def test_one_wrong_or_missing_result_is_no_proof(change, is_proof):
    good = KeyframesResult(4, 1, 2, 4, 1.0, 2.0, 8, 0, 0, 0, 2, 4.0, 1.0, 2.0, 1.0, {}, IDLE)
    assert replace(good, **change).is_proof is is_proof


def test_clips_take_turns_in_formats_and_have_one_key_frame_a_second(tmp_path):
    paths = keyframes.clips(tmp_path, 5, formats=SMALL)
    assert [path.suffix for path in paths] == [".mp4", ".mp4", ".mp4", ".ts", ".ts"]
    for number, path in enumerate(paths):
        info, packets = packets_of(path)
        spec = SMALL[number % len(SMALL)]
        assert (info.codec, info.width, info.height) == (spec.codec, spec.width, spec.height)
        assert [packet.token for packet in packets if packet.is_keyframe] == [0]
        assert len(packets) == 30


def test_the_formats_differ_where_sessions_must_not_be_shared():
    assert len(set(keyframes.FORMATS)) >= 8
    sizes = {(spec.codec, spec.width, spec.height) for spec in keyframes.FORMATS}
    assert {(codec, 1280, height) for codec in ("h264", "hevc") for height in (530, 532)} <= sizes


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs `streamd bench keyframes` with small clips: exit code and the JSON object."""

    def run(*arguments):
        measure = keyframes.measure
        monkeypatch.setattr(keyframes, "measure", lambda *args, **options: measure(*args, **options, formats=SMALL))
        monkeypatch.setattr(keyframes, "_SETTLE_S", 0.1)
        monkeypatch.setattr(keyframes, "_NO_MORE_S", 1.0)
        monkeypatch.setattr("sys.argv", ["streamd", "bench", "keyframes", "--device", "cpu", "--workers", "1", "--json", *arguments])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        return leaving.value.code or 0, json.loads(capsys.readouterr().out)

    return run


def test_each_result_belongs_to_its_own_camera(run):
    code, found = run("--cameras", "6", "--seconds", "2")
    assert code == 0
    assert found.items() >= {"cameras": 6, "numbers": 6, "formats": 3, "wrong_labels": 0, "lost_key_frames": 0, "silent_cameras": 0}.items()
    assert found["results"] >= 12
    assert 0 < found["sessions"] <= 3 * os.cpu_count()
    assert found["fps"] == pytest.approx(6, rel=0.4)


def test_a_picture_of_another_camera_is_found(run, monkeypatch):
    """The clips of two cameras are exchanged."""
    mark = identity.mark
    monkeypatch.setattr(identity, "mark", lambda luma, number: mark(luma, {1: 2, 2: 1}.get(number, number)))
    code, found = run("--cameras", "3", "--seconds", "1")
    assert code == os.EX_SOFTWARE
    assert 0 < found["wrong_labels"] < found["results"]
