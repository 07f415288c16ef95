"""Models of torchvision: with local weights, and what is said when something does not fit."""

from __future__ import annotations

import socket

import pytest
import torch
from safetensors.torch import save_file
from torchvision.models import googlenet, resnet18

from streamd.config.types import ModelConfig
from streamd.errors import ModelError
from streamd.models import load
from streamd.models.torchvision_zoo import _find_weights, _input_spec


def config(**keys):
    return ModelConfig.model_validate(keys)


def saved(state, path):
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_a_local_file_decides_the_number_of_classes(suffix, seven_classes, labels_file, tmp_path):
    file = saved(seven_classes, tmp_path / f"weights{suffix}")
    model = load("door", config(torchvision="resnet18", weights_file=file, labels_file=labels_file), device="cpu")
    assert model.name == "door"
    assert model.labels == ("cat", "dog", "bird", "fish", "frog", "horse", "café")
    assert (model.input.resize, model.input.crop, model.input.interpolation) == (256, (224, 224), "bilinear")
    assert not model.module.training
    assert not any(parameter.requires_grad for parameter in model.module.parameters())
    expected = resnet18(weights=None, num_classes=7).eval()
    expected.load_state_dict(seven_classes)
    picture = torch.rand(1, 3, 224, 224)
    with torch.inference_mode():
        assert torch.equal(model.module(picture), expected(picture))


def test_half_precision_weights_give_a_float32_model(seven_classes, labels_file, tmp_path):
    halves = {name: value.half() if value.is_floating_point() else value for name, value in seven_classes.items()}
    file = saved(halves, tmp_path / "half.safetensors")
    model = load("door", config(torchvision="resnet18", weights_file=file, labels_file=labels_file), device="cpu")
    assert {parameter.dtype for parameter in model.module.parameters()} == {torch.float32}


def test_a_local_file_with_the_published_classes_needs_no_labels(tmp_path):
    file = saved(resnet18(weights=None).state_dict(), tmp_path / "weights.safetensors")
    model = load("door", config(torchvision="resnet18", weights_file=file), device="cpu")
    assert len(model.labels) == 1000
    assert model.labels[281:283] == ("tabby", "tiger cat")


@pytest.mark.parametrize("has_heads", [True, False])
def test_googlenet_loads_with_and_without_its_training_heads(has_heads, tmp_path, labels_file):
    state = googlenet(weights=None, num_classes=7, aux_logits=has_heads, init_weights=False).state_dict()
    file = saved(state, tmp_path / "weights.pth")
    model = load("door", config(torchvision="googlenet", weights_file=file, labels_file=labels_file), device="cpu")
    with torch.inference_mode():
        assert model.module(torch.rand(2, 3, 224, 224)).shape == (2, 7)


def test_weights_with_other_classes_need_a_labels_file(seven_classes, tmp_path):
    file = saved(seven_classes, tmp_path / "weights.safetensors")
    with pytest.raises(
        ModelError, match=r"^models\.door\.labels_file: the model has 7 outputs, but ResNet18_Weights.* names 1000 classes.*7 lines"
    ):
        load("door", config(torchvision="resnet18", weights_file=file), device="cpu")


def test_a_labels_file_of_another_length_is_refused(seven_classes, labels_file, tmp_path):
    file = saved(seven_classes, tmp_path / "weights.safetensors")
    labels_file.write_text("cat\ndog\n", encoding="utf-8")
    with pytest.raises(ModelError, match=rf"^models\.door\.labels_file: the model has 7 outputs, but {labels_file} names 2 classes"):
        load("door", config(torchvision="resnet18", weights_file=file, labels_file=labels_file), device="cpu")


def test_weights_of_another_model_are_refused_with_the_names_that_differ(seven_classes, labels_file, tmp_path):
    file = saved(seven_classes, tmp_path / "weights.safetensors")
    with pytest.raises(ModelError) as caught:
        load("door", config(torchvision="resnet34", weights_file=file, labels_file=labels_file), device="cpu")
    assert str(caught.value).startswith(f"models.door.weights_file: {file} does not fit resnet34: it lacks layer1.2.conv1.weight, ")
    assert " and " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_in_another_shape_and_too_many_are_named(seven_classes, labels_file, tmp_path):
    state = {**seven_classes, "conv1.weight": torch.zeros(64, 1, 7, 7), "ema.decay": torch.zeros(1)}
    file = saved(state, tmp_path / "weights.safetensors")
    with pytest.raises(ModelError, match=r"it has too much ema\.decay; it has in another shape conv1\.weight$"):
        load("door", config(torchvision="resnet18", weights_file=file, labels_file=labels_file), device="cpu")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("resnet5", "did you mean resnet50"), ("EfficientNet_B0", "did you mean efficientnet_b0"), ("zebra", "lists them")],
)
def test_an_unknown_name_is_refused_with_close_ones(name, hint):
    with pytest.raises(ModelError, match=rf"^models\.door\.torchvision: '{name}' is no classification model of torchvision.*{hint}"):
        load("door", config(torchvision=name), device="cpu")


@pytest.mark.parametrize("name", ["fasterrcnn_resnet50_fpn", "deeplabv3_resnet50", "r3d_18", "raft_small", "quantized_resnet18"])
def test_models_that_do_not_classify_pictures_are_refused(name):
    with pytest.raises(ModelError, match="is no classification model"):
        load("door", config(torchvision=name), device="cpu")


def test_unknown_weights_are_refused_with_those_there_are():
    with pytest.raises(
        ModelError, match=r"^models\.door\.weights: resnet50 has no weights 'V3'; it has IMAGENET1K_V1, IMAGENET1K_V2, DEFAULT"
    ):
        load("door", config(torchvision="resnet50", weights="V3"), device="cpu")


def test_weights_without_classes_are_not_offered():
    with pytest.raises(ModelError, match="vgg16 has no weights 'IMAGENET1K_FEATURES'"):
        load("door", config(torchvision="vgg16", weights="IMAGENET1K_FEATURES"), device="cpu")


def test_a_failed_download_says_where_to_put_the_file(tmp_path, monkeypatch, capfd):
    def refuse(*_arguments, **_keywords):
        raise OSError("no network in this test")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ModelError) as caught:
        load("door", config(torchvision="resnet18"), device="cpu")
    assert str(caught.value).startswith("models.door.weights: ResNet18_Weights.IMAGENET1K_V1 cannot be downloaded (")
    assert f"copy resnet18-f37072fd.pth from a machine that has it to {tmp_path}/hub/checkpoints/resnet18-f37072fd.pth" in str(caught.value)
    assert "set `weights_file`" in str(caught.value)
    assert capfd.readouterr().out == ""


def test_published_weights_are_taken_from_torchs_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save(resnet18(weights=None).state_dict(), cache / "resnet18-f37072fd.pth")
    model = load("door", config(torchvision="resnet18"), device="cpu")
    assert len(model.labels) == 1000
    assert model.module(torch.rand(1, 3, 224, 224)).shape == (1, 1000)


def test_code_in_torchs_cache_is_not_run(tmp_path, monkeypatch, malicious_pickle):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    trap = malicious_pickle(cache / "resnet18-f37072fd.pth")
    with pytest.raises(ModelError, match="is never run"):
        load("door", config(torchvision="resnet18"), device="cpu")
    assert not trap.exists()


@pytest.mark.parametrize(
    ("architecture", "weights", "resize", "crop", "interpolation"),
    [
        ("resnet50", "DEFAULT", 232, 224, "bilinear"),
        ("resnet50", "IMAGENET1K_V1", 256, 224, "bilinear"),
        ("efficientnet_b0", "DEFAULT", 256, 224, "bicubic"),
        ("vit_h_14", "IMAGENET1K_SWAG_E2E_V1", 518, 518, "bicubic"),
        ("inception_v3", "DEFAULT", 342, 299, "bilinear"),
    ],
)
def test_the_input_is_that_of_the_weights_own_transforms(architecture, weights, resize, crop, interpolation):
    spec = _input_spec(_find_weights(architecture, weights, key="models.door").transforms())
    assert (spec.resize, spec.crop, spec.interpolation) == (resize, (crop, crop), interpolation)
    assert spec.mean == (0.485, 0.456, 0.406)
    assert spec.std == (0.229, 0.224, 0.225)
