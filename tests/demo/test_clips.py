"""The clips play like cameras, and their labels are true at every moment."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from support.clips import decoded

from streamd.config.types import ModelConfig
from streamd.decoders.cpu import CpuDecoder
from streamd.demo.clips import FPS, H264, HEVC, SECONDS, SIZE, make_clip
from streamd.demo.photographs import PHOTOGRAPHS, path_of
from streamd.models import load
from streamd.preprocess import create
from streamd.sources.file import FileSource


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("photographs")
    made = {photograph.name: folder / f"{photograph.name}.mp4" for photograph in PHOTOGRAPHS}
    for photograph in PHOTOGRAPHS:
        encoding = HEVC if photograph.name == "espresso" else H264
        make_clip(path_of(photograph), made[photograph.name], encoding=encoding, stop=threading.Event())
    return made


@pytest.mark.parametrize(("name", "codec"), [("cat", "h264"), ("espresso", "hevc"), ("moped", "h264")])
def test_a_clip_is_like_a_cameras_stream(clips, name, codec):
    source = FileSource(clips[name], loop=False)
    info = source.open()
    packets = list(source.packets())
    source.close()
    assert (info.codec, (info.width, info.height), float(info.frame_rate), info.reorder_frames) == (codec, SIZE, FPS, 0)
    assert len(packets) == FPS * SECONDS
    assert [packet.token for packet in packets if packet.is_keyframe] == list(range(0, FPS * SECONDS, 2 * FPS))


@pytest.mark.parametrize("photograph", PHOTOGRAPHS, ids=lambda photograph: photograph.name)
def test_the_models_best_label_is_true_from_beginning_to_end(clips, photograph):
    model = load("imagenet", ModelConfig(builtin="efficientnet-lite0"), device="cpu")
    source = FileSource(clips[photograph.name], loop=False)
    decoder = CpuDecoder(source.open(), device="cpu")
    preprocess = create(model.input, torch.device("cpu"))
    samples = torch.empty(FPS * SECONDS // 10, 3, *model.input.crop)
    for packet in source.packets():
        for frame in decoder.decode(packet):
            if frame.token % 10 == 0:
                preprocess(frame, samples[frame.token // 10])
    source.close()
    best = model.module(samples).argmax(dim=1).tolist()
    assert {model.labels[index] for index in best} <= photograph.labels


def test_the_picture_moves_and_comes_back_without_a_seam(clips):
    pictures = [picture.astype(np.int16) for picture in decoded(clips["moped"])]

    def difference(a: int, b: int) -> float:
        return float(np.abs(pictures[a] - pictures[b]).mean())

    step = max(difference(number, number + 1) for number in range(0, len(pictures) - 1, 20))
    assert difference(0, len(pictures) // 4) > 1.5 * step
    assert difference(0, -1) < 1.1 * step


def test_encoding_stops_when_asked(tmp_path):
    stop = threading.Event()
    stop.set()
    make_clip(path_of(PHOTOGRAPHS[0]), tmp_path / "clip.mp4", encoding=H264, stop=stop)
    assert not (tmp_path / "clip.mp4").exists()
