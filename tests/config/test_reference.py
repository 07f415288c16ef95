"""configs/reference.yaml is the manual: its keys, defaults and explanations are those of the types, both ways."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from streamd.config import load
from streamd.config.types import CameraConfig, CameraDefaults, MainFile, ModelConfig, Section
from streamd.config.yaml import Node, parse

CONFIGS = Path(__file__).parents[2] / "configs"
MAIN_TEXT, CAMERA_TEXT = (CONFIGS / "reference.yaml").read_text().split("\n---\n")
EXAMPLES = {"models.imagenet.torchvision", "url"}
"""Keys that show a value because they have no default, or need company."""
NULL_SECTIONS = {"jsonl"}
"""Shown with their keys, though null unless given; their comment says so."""


def leaves(section: type[Section], path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Path, default and docstring of each key that is no group."""
    for name, field in section.model_fields.items():
        below, inner = f"{path}{name}", section_in(field.annotation)
        if inner is None:
            yield below, field.default, field.description or ""
        else:
            entry = ".imagenet" if get_origin(field.annotation) is dict else ""
            yield from leaves(inner, f"{below}{entry}.")


def section_in(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(section_in, get_args(annotation))), None)


def written(text: str) -> dict[str, Node]:
    tree, problems = parse(text, "reference.yaml")
    assert tree is not None
    assert problems == []

    def walk(node: Node) -> Iterator[tuple[str, Node]]:
        if isinstance(node.value, dict):
            for item in node.value.values():
                yield from walk(item)
        else:
            yield node.path, node

    return dict(walk(tree))


def comment_above(text: str, line: int) -> str:
    lines = text.splitlines()[: line - 1]
    comment: list[str] = []
    while lines and (match := re.fullmatch(r"\s*# (.*)", lines.pop())):
        comment.insert(0, match[1])
    return " ".join(comment)


CAMERA_ONLY = [leaf for leaf in leaves(CameraConfig) if leaf[0].split(".")[0] not in CameraDefaults.model_fields]
PARTS = [(MAIN_TEXT, list(leaves(MainFile))), (CAMERA_TEXT, CAMERA_ONLY)]


@pytest.mark.parametrize(("text", "keys"), PARTS, ids=["streamd.yaml", "camera"])
def test_every_key_stands_there_and_no_other(text, keys):
    assert list(written(text)) == [path for path, _, _ in keys]


@pytest.mark.parametrize(("text", "keys"), PARTS, ids=["streamd.yaml", "camera"])
def test_every_key_is_explained_with_the_words_of_its_type(text, keys):
    nodes = written(text)
    for path, _, docstring in keys:
        assert docstring
        assert docstring in comment_above(text, nodes[path].key.line), path


def test_every_value_is_the_default(tmp_path):
    (tmp_path / "cameras").mkdir()
    (tmp_path / "streamd.yaml").write_text(MAIN_TEXT)
    (tmp_path / "cameras/door.yaml").write_text(CAMERA_TEXT)
    config = load(tmp_path)
    assert config.models == {"imagenet": ModelConfig(torchvision="resnet50")}
    assert config.cameras == {"door": CameraConfig(url="rtsp://192.0.2.10/stream1")}
    plain = MainFile(models={"imagenet": ModelConfig(torchvision="resnet50")})
    for name, field in MainFile.model_fields.items():
        if name not in {"models", "camera_defaults"} | NULL_SECTIONS:
            assert getattr(config, name) == getattr(plain, name), name
        if name in NULL_SECTIONS:
            inner = section_in(field.annotation)
            assert inner is not None
            assert getattr(config, name) == inner()
            assert field.default is None


def test_a_default_is_not_hidden_behind_an_example():
    shown = {path: node.value for text, _ in PARTS for path, node in written(text).items()}
    for _, keys in PARTS:
        for path, default, _ in keys:
            if path not in EXAMPLES and isinstance(default, str | bool | None):
                assert shown[path] == default, path
