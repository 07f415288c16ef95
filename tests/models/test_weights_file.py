"""Reading weights and labels from files that others made."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from streamd.errors import ModelError
from streamd.models.weights_file import read_labels, read_state_dict

KEY = "models.door.weights_file"


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        read_state_dict(path, key=KEY)
    message = str(caught.value)
    assert message.startswith(f"{KEY}: {path} ")
    assert "\n" not in message
    assert len(message) < 500
    return message


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".PTH"])
def test_tensors_are_read_by_name(tmp_path, suffix):
    file = tmp_path / f"weights{suffix}"
    state = {"a": torch.arange(3.0), "b": torch.ones(2, 2)}
    (save_file if suffix == ".safetensors" else torch.save)(state, file)
    result = read_state_dict(file, key=KEY)
    assert result.keys() == state.keys()
    assert all(torch.equal(result[name], state[name]) for name in state)


def test_a_pickle_with_code_is_refused_and_the_code_not_run(tmp_path, malicious_pickle):
    file = tmp_path / "weights.pth"
    trap = malicious_pickle(file)
    message = refusal(file)
    assert "it refers to posix.mkdir" in message
    assert "Code in a weights file is never run" in message
    assert "model.state_dict()" in message
    assert not trap.exists()
    torch.load(file, weights_only=False)
    assert trap.exists(), "the trap must work, or this test proves nothing"


def test_a_whole_model_is_refused(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "weights.pth")
    assert "torch.nn.modules.linear.Linear" in refusal(tmp_path / "weights.pth")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"model": {"a": torch.ones(1)}, "epoch": 3}, "has the entries model, epoch; it must hold nothing but a state_dict"),
        ([torch.ones(1)], "holds a list"),
        (torch.ones(1), "holds a Tensor"),
        ({}, "has the entries (none)"),
    ],
)
def test_anything_but_a_state_dict_is_refused(tmp_path, content, said):
    torch.save(content, tmp_path / "weights.pt")
    assert said in refusal(tmp_path / "weights.pt")


def test_a_training_checkpoint_with_arguments_is_refused(tmp_path):
    torch.save({"model": {}, "args": argparse.Namespace(lr=1)}, tmp_path / "weights.pth")
    assert "argparse.Namespace" in refusal(tmp_path / "weights.pth")


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
@pytest.mark.parametrize("content", [b"", b"not weights at all\n" * 50, b"PK\x03\x04 cut off", bytes(range(256)) * 8])
def test_a_damaged_file_is_refused(tmp_path, suffix, content):
    file = tmp_path / f"weights{suffix}"
    file.write_bytes(content)
    assert "cannot be read as plain tensors" in refusal(file)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_a_file_that_was_cut_off_is_refused(tmp_path, suffix):
    file = tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)({"a": torch.ones(1000)}, file)
    file.write_bytes(file.read_bytes()[:2000])
    assert "cannot be read as plain tensors" in refusal(file)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    assert "is not there" in refusal(tmp_path / "weights.pth")
    (tmp_path / "folder.pth").mkdir()
    assert "or not a file" in refusal(tmp_path / "folder.pth")


def test_other_kinds_of_files_are_refused(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"x")
    assert "none of .safetensors, .pt and .pth" in refusal(tmp_path / "model.onnx")


def test_labels_are_the_lines_of_a_file(tmp_path):
    file = tmp_path / "labels.txt"
    file.write_bytes("\ufefftiger cat\r\n  café \r\ncrane\r\ncrane\r\n\r\n".encode())
    assert read_labels(file, key="models.door.labels_file") == ("tiger cat", "café", "crane", "crane")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty; write one class name a line"), (b"cat\n\ndog\n", ":2: is empty"), (b"caf\xe9\n", "not UTF-8 text")],
)
def test_labels_that_cannot_be_used_are_refused(tmp_path, content, said):
    file = tmp_path / "labels.txt"
    file.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_labels(file, key="models.door.labels_file")
    assert str(caught.value).startswith(f"models.door.labels_file: {file}")
    assert said in str(caught.value)


def test_missing_labels_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"labels\.txt cannot be read \(No such file or directory\)"):
        read_labels(tmp_path / "labels.txt", key="models.door.labels_file")
