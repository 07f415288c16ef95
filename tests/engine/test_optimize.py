"""What is done to a model for speed changes nothing in what it says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.optimization import fuse
from torchvision.models import get_model

from streamd.engine import optimize
from streamd.engine.optimize import ConvAddRelu, ConvRelu
from streamd.models import LoadedModel
from streamd.preprocess.spec import InputSpec

SPEC = InputSpec(resize=64, crop=(64, 64), interpolation="bilinear", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def network(name: str) -> nn.Module:
    """With random weights, and batch normalisations that do something."""
    torch.manual_seed(2)
    module = get_model(name, weights=None).eval().requires_grad_(requires_grad=False)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.2, 0.2)
            layer.running_var.uniform_(0.5, 1.5)
    return module


def kinds(module: nn.Module) -> Counter[type]:
    return Counter(type(layer) for layer in module.modules())


@pytest.mark.parametrize(("name", "relus", "added"), [("resnet18", 9, 8), ("resnet50", 33, 16), ("vgg11", 8, 0), ("mobilenet_v2", 0, 0)])
def test_convolutions_take_over_relus_and_additions(name, relus, added):
    plain = network(name)
    optimized = optimize.with_activations(fuse(plain))
    found = kinds(optimized)
    assert (found[ConvRelu], found[ConvAddRelu]) == (relus, added)
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(optimized(pixels), plain(pixels), rtol=1e-3, atol=1e-3)


class Shared(nn.Module):
    """Whose first convolution has two readers, and whose second is added to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(x)
        return self.relu(first) + first + self.relu(second + second) + torch.relu(self.third(x) + 1)


def test_what_has_other_readers_stays():
    torch.manual_seed(4)
    plain = Shared().eval()
    optimized = optimize.with_activations(fx.symbolic_trace(plain))
    assert (kinds(optimized)[ConvRelu], kinds(optimized)[ConvAddRelu]) == (0, 0)
    pixels = torch.rand(1, 3, 8, 8)
    assert torch.equal(optimized(pixels), plain(pixels))


@pytest.mark.parametrize("padding", ["same", "zeros"])
def test_a_convolution_with_padding_of_another_kind_stays(padding):
    conv = nn.Conv2d(3, 3, 3, padding="same") if padding == "same" else nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")
    optimized = optimize.with_activations(fx.symbolic_trace(nn.Sequential(conv, nn.ReLU())))
    assert kinds(optimized)[ConvRelu] == 0


class Untraceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).relu() if x.mean() > 0 else self.conv(x)


def test_a_model_that_cannot_be_traced_runs_as_it_is():
    module = Untraceable()
    model = LoadedModel(name="odd", module=module, labels=("a",), input=SPEC)
    assert optimize.for_gpu(model) is module


def test_a_failed_compilation_says_what_to_do():
    error = optimize.compile_failed("main", RuntimeError("Failed to find C compiler.\nmore"))
    assert str(error) == (
        "models.main.compile: torch.compile failed (Failed to find C compiler.); it needs triton and a C compiler, or set compile: false"
    )


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 0.01), ("fp16", 0.03), ("bf16", 0.2)])
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "efficientnet_b0"])
def test_on_a_gpu_it_says_what_the_plain_model_says(name, precision, tolerance):
    plain = network(name).cuda()
    model = LoadedModel(name=name, module=network(name).cuda(), labels=("a",), input=SPEC, precision=precision)
    pixels = torch.rand(4, 3, 64, 64, device="cuda")
    expected = plain(pixels)
    with torch.inference_mode():
        for batch in (1, 4):
            out = optimize.for_gpu(replace(model, module=network(name).cuda()))(
                pixels[:batch].to(optimize.DTYPES[precision]).contiguous(memory_format=torch.channels_last)
            )
            assert (out.float() - expected[:batch]).abs().max() <= tolerance * expected.abs().max()
