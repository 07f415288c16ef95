"""A loaded model made fast for a GPU: the same function with fewer and larger kernels. Nothing here changes what a model says, but for
rounding.
"""

from __future__ import annotations

import operator

import structlog
import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.optimization import fuse

from streamd.errors import ModelError
from streamd.models import LoadedModel

log = structlog.get_logger(__name__)

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def for_gpu(model: LoadedModel) -> nn.Module:
    """The module as it runs on a GPU: in the model's precision, channels_last, batch normalisations folded into the convolutions before
    them, ReLUs and the additions before them computed by the convolutions; or, with `compile`, by what torch.compile makes of it at the
    first call.
    """
    module = _traced(model.module, name=model.name)
    if isinstance(module, fx.GraphModule) and not model.compile:
        module = with_activations(module)
    module = module.to(DTYPES[model.precision]).to(memory_format=torch.channels_last)
    if model.compile:
        module.compile(dynamic=False)  # once for each batch size
    return module


def _traced(module: nn.Module, *, name: str) -> nn.Module:
    """The module as a graph, with its batch normalisations folded; as it is, where torch.fx cannot trace it."""
    try:
        return fuse(module)
    except Exception as error:  # noqa: BLE001 - tracing runs the module's own code, which may raise anything
        log.info("model_not_folded", model=name, reason=str(error))
        return module


def with_activations(module: fx.GraphModule) -> fx.GraphModule:
    """Convolutions take over the ReLU that follows, and the addition between the two. What has other users stays as it is."""
    modules = dict(module.named_modules())
    for node in list(module.graph.nodes):
        if not _is_relu(node, modules):
            continue
        source = node.args[0]
        if _is_own_conv(source, modules):
            conv, arguments = source, source.args
        elif _is_sum(source) and (conv := next((term for term in source.args if _is_own_conv(term, modules)), None)) is not None:
            other = source.args[1] if source.args[0] is conv else source.args[0]
            if other is conv or not isinstance(other, fx.Node):
                continue
            arguments = (*conv.args, other)
        else:
            continue
        name = f"{conv.target.replace('.', '_')}_with_relu"
        module.add_module(name, (ConvRelu if conv is source else ConvAddRelu)(modules[conv.target]))
        with module.graph.inserting_before(node):
            node.replace_all_uses_with(module.graph.call_module(name, arguments))
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()
    return module


def _is_relu(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    is_module = node.op == "call_module" and type(modules[str(node.target)]) is nn.ReLU
    is_function = node.op == "call_function" and node.target in {torch.relu, torch.nn.functional.relu}
    return (is_module or is_function) and isinstance(node.args[0], fx.Node)


def _is_own_conv(node: object, modules: dict[str, nn.Module]) -> bool:
    """A plain 2d convolution that nobody else reads, with zeros as explicit padding."""
    if not (isinstance(node, fx.Node) and node.op == "call_module" and len(node.users) == 1 and not node.kwargs):
        return False
    conv = modules[str(node.target)]
    return type(conv) is nn.Conv2d and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)


def _is_sum(node: fx.Node) -> bool:
    is_sum = node.op == "call_function" and node.target in {operator.add, operator.iadd, torch.add}
    return is_sum and len(node.users) == 1 and len(node.args) == 2 and not node.kwargs


class ConvRelu(nn.Module):
    """relu(conv(x)); on a GPU one kernel of cudnn."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, height, width], as nn.Conv2d."""
        conv = self.conv
        if not x.is_cuda:
            return torch.relu(conv(x))
        result: Tensor = torch.ops.aten.cudnn_convolution_relu(
            x, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups
        )
        return result


class ConvAddRelu(nn.Module):
    """relu(conv(x) + other); on a GPU one kernel of cudnn."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        """[batch, channels, height, width], as nn.Conv2d; `other` has the shape of its result."""
        conv = self.conv
        if not x.is_cuda:
            return torch.relu(conv(x) + other)
        result: Tensor = torch.ops.aten.cudnn_convolution_add_relu(
            x, conv.weight, other, 1.0, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups
        )
        return result


def compile_failed(name: str, error: Exception) -> ModelError:
    """What to tell the user when a compiled model does not run; `name` is its key in the configuration."""
    words = str(error).strip().splitlines()
    reason = words[0] if words else type(error).__name__
    return ModelError(f"models.{name}.compile: torch.compile failed ({reason}); it needs triton and a C compiler, or set compile: false")
