"""`streamd check`, as people and programs call it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamd.cli import app

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """The current folder, with a good configuration in `configs/`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STREAMD_CONFIG", raising=False)
    (tmp_path / "configs/cameras").mkdir(parents=True)
    (tmp_path / "configs/streamd.yaml").write_text("models: {imagenet: {torchvision: resnet50}}\n")
    for name in ("door", "yard"):
        (tmp_path / f"configs/cameras/{name}.yaml").write_text("url: rtsp://192.0.2.10/stream\n")
    return tmp_path


def check(*arguments: str):
    return CliRunner().invoke(app, ["check", *arguments])


@pytest.mark.parametrize("path", [[], ["configs"], ["configs/streamd.yaml"]])
def test_a_good_configuration_is_one_line_and_exit_code_0(folder, path):
    result = check(*path)
    assert (result.exit_code, result.output) == (0, "configs: 2 cameras, 1 model: no problems\n")


def test_problems_are_one_line_each_and_exit_code_78(folder):
    (folder / "configs/cameras/door.yaml").write_text("url: x.mp4\nfps: 0\nwibble: 1\n")
    result = check("configs")
    assert result.exit_code == os.EX_CONFIG == 78
    assert (
        result.stdout == "configs/cameras/door.yaml:2:6: fps: must be greater than 0\nconfigs/cameras/door.yaml:3:1: wibble: unknown key\n"
    )


def test_a_video_that_does_not_exist_is_a_problem(folder):
    (folder / "configs/cameras/door.yaml").write_text("url: x.mp4\n")
    result = check()
    assert (result.exit_code, result.stdout) == (
        78,
        f"configs/cameras/door.yaml:1:6: url: {folder}/configs/cameras/x.mp4 does not exist\n",
    )


def test_no_configuration_is_exit_code_66(folder):
    result = check("nowhere")
    assert (result.exit_code, result.stdout) == (os.EX_NOINPUT, "nowhere: does not exist\n")


def test_programs_get_json(folder):
    result = check("--format", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"cameras": ["door", "yard"], "models": ["imagenet"], "problems": []})
    (folder / "configs/cameras/door.yaml").write_text("url: rtsp://192.0.2.10/stream\nfps: 0\n")
    result = check("--format", "json")
    problem = {"file": "configs/cameras/door.yaml", "line": 2, "column": 6, "path": "fps", "message": "must be greater than 0"}
    assert (result.exit_code, json.loads(result.stdout)) == (78, {"problems": [problem]})


def test_the_configuration_that_comes_with_streamd_has_no_problems_on_a_bare_machine():
    result = subprocess.run(
        [sys.executable, "-m", "streamd", "check", str(CONFIGS)],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(CONFIGS.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{CONFIGS}: 1 camera, 1 model: no problems\n", "")


def test_check_imports_neither_torch_av_nor_redis():
    program = (
        "import sys\n"
        "from streamd.cli import app\n"
        f"app(['check', {str(CONFIGS)!r}], standalone_mode=False)\n"
        "print(sorted({'torch', 'torchvision', 'av', 'redis', 'numpy', 'PyNvVideoCodec'} & sys.modules.keys()))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60, cwd=CONFIGS.parent)
    assert result.stdout.splitlines()[-1:] == ["[]"], result.stderr
