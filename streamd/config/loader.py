"""Files to a Config: streamd.yaml and cameras/*.yaml beside it. Reports every problem of every file at once, or none.

It opens the YAML files and the files of `${file:NAME}`, and nothing else: videos and weights are looked at only where the caller asks.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr, ValidationError

from streamd.config import words
from streamd.config.scalars import NAME_PATTERN
from streamd.config.substitute import Substitution
from streamd.config.types import CameraConfig, Config, MainFile, ModelConfig, Section, SharedSections
from streamd.config.yaml import Node, parse, printable, problem_at
from streamd.errors import ConfigError, ConfigNotFound, Problem

MAIN_FILE = "streamd.yaml"
SEARCH_PATH = (Path("configs"), Path("/etc/streamd"))
SECRETS_FOLDER = Path("/run/secrets")

_MAIN_EXAMPLE = "`models: {imagenet: {torchvision: resnet50}}`"
_CAMERA_EXAMPLE = "`url: rtsp://HOST/PATH`"
_SUFFIXES = {".yaml", ".yml"}
_S = TypeVar("_S", bound=Section)


def load(path: Path | None = None, *, require_files: bool = False) -> Config:
    """The configuration at `path`: its folder, or streamd.yaml in it. Without `path`: $STREAMD_CONFIG, ./configs, /etc/streamd.

    `require_files` also reports videos, weights and labels that do not exist now; a daemon may start before its disks are mounted.
    Raises ConfigNotFound where there is no configuration, ConfigError with all problems, by file and line, where there are any.
    """
    return _Load(find(path), require_files=require_files).config()


def find(path: Path | None = None) -> Path:
    """The main file that `load` reads. Raises ConfigNotFound; a folder without streamd.yaml is found, and `load` says what is missing."""
    named_by = ""
    if path is None and (named := os.environ.get("STREAMD_CONFIG")):
        path, named_by = Path(named), "; $STREAMD_CONFIG names it"
    if path is None:
        for folder in SEARCH_PATH:
            if os.path.exists(folder / MAIN_FILE):  # noqa: PTH110 - False, not an error, for a folder that is closed to us
                return folder / MAIN_FILE
        places = " or ".join(f"{folder}/" for folder in SEARCH_PATH)
        raise ConfigNotFound(Problem(MAIN_FILE, f"not found in {places}; name its folder on the command line or in $STREAMD_CONFIG"))
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        raise ConfigNotFound(Problem(printable(str(path)), f"does not exist{named_by}")) from None
    except (OSError, ValueError) as error:
        raise ConfigError(_unreadable(path, error)) from None
    return path / MAIN_FILE if is_folder else path


class _Load:
    """One pass over the files of a configuration."""

    def __init__(self, main: Path, *, require_files: bool) -> None:
        self._main = main
        self._require_files = require_files
        self._problems: dict[tuple[object, ...], Problem] = {}
        credentials = os.environ.get("CREDENTIALS_DIRECTORY")
        folders = [Path(credentials)] if credentials else []
        self._substitution = Substitution(env=os.environ, folders=[*folders, SECRETS_FOLDER])

    def config(self) -> Config:
        tree = self._read(self._main, example=_MAIN_EXAMPLE)
        sections = self._validate(MainFile, tree) if tree else None
        entries = _entries(tree)
        models = list(_entries(entries.get("models")))
        device = _entries(entries.get("engine")).get("device")
        on_cpu = device is not None and device.value == "cpu"
        cameras = self._cameras(entries.get("camera_defaults"), models, on_cpu=on_cpu)
        with_paths = self._absolute_models(sections, entries) if sections else {}
        if self._problems or sections is None:
            order = sorted(self._problems.values(), key=lambda p: (p.file, p.line or 0, p.column or 0, p.path, p.message))
            raise ConfigError(*order)
        shared = {name: getattr(sections, name) for name in SharedSections.model_fields}
        redact = tuple(map(SecretStr, sorted(self._substitution.secrets)))
        if sections.jsonl is not None and sections.jsonl.path != "-":
            path = self._main.parent.absolute() / sections.jsonl.path
            shared["jsonl"] = sections.jsonl.model_copy(update={"path": os.path.normpath(path)})
        if sections.state_dir is not None:
            shared["state_dir"] = Path(os.path.normpath(self._main.parent.absolute() / sections.state_dir))
        return Config(**{**shared, "models": with_paths, "cameras": cameras, "redact": redact})

    def _cameras(self, defaults: Node | None, models: list[str], *, on_cpu: bool) -> dict[str, CameraConfig]:
        """Those that are enabled. A camera's problem with a default's value is reported where the default stands."""
        folder = self._main.parent / "cameras"
        cameras: dict[str, CameraConfig] = {}
        files = list(self._camera_files(folder))
        for name, file in files:
            tree = self._read(file, example=_CAMERA_EXAMPLE)
            if tree is None:
                continue
            camera = self._validate(CameraConfig, merged(defaults, tree))
            self._check_model(merged(defaults, tree), models)
            self._check_gpu(merged(defaults, tree), on_cpu=on_cpu)
            if camera is not None and camera.enabled:
                cameras[name] = self._absolute_url(camera, tree, file)
        shown = printable(str(folder))
        if not files and not self._problems_in(folder):
            self._add(Problem(shown, f"no cameras: add a file {shown}/NAME.yaml; streamd probe URL --write writes one"))
        elif not cameras and not self._problems:
            self._add(Problem(shown, "all cameras have `enabled: false`; enable one, or add one"))
        return cameras

    def _camera_files(self, folder: Path) -> Iterator[tuple[str, Path]]:
        """Name and file of each camera, in lexical order; hidden files and editors' copies are passed over."""
        try:
            files = sorted(folder.iterdir())
        except FileNotFoundError:
            return
        except OSError as error:
            self._add(_unreadable(folder, error))
            return
        seen: dict[str, Path] = {}
        for file in files:
            if file.suffix not in _SUFFIXES or file.name.startswith((".", "~")):
                continue
            first = seen.setdefault(file.stem, file)
            if not re.fullmatch(NAME_PATTERN.strip("^$"), file.stem):
                message = (
                    "the file's name is the camera's: it must be 1 to 64 letters, digits, `_`, `.` or `-`, and begin with a letter or digit"
                )
                self._add(Problem(printable(str(file)), message))
            elif first is not file:
                self._add(Problem(printable(str(file)), f"a second camera {file.stem}, after {first.name}; rename or remove one"))
            yield file.stem, file

    def _read(self, file: Path, *, example: str) -> Node | None:
        """The tree of `file`, filled in; None, with a problem, where it holds no keys at all. `example`: what it might say."""
        shown = printable(str(file))
        try:
            if not file.is_file() and file.exists():
                raise OSError(0, "not a file")  # a FIFO would block for ever
            text = file.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = error.object[: error.start]
            line, column = before.count(b"\n") + 1, len(before[before.rfind(b"\n") + 1 :].decode("utf-8-sig", "replace")) + 1
            self._add(Problem(shown, "not UTF-8 text; save the file as UTF-8", line, column))
            return None
        except OSError as error:
            self._add(_unreadable(file, error))
            return None
        tree, problems = parse(text, shown)
        for problem in problems:
            self._add(problem)
        if tree is None:
            return None
        if not isinstance(tree.value, dict):
            self._add(
                tree.problem(f"{'is empty' if tree.value is None else 'is no mapping'}; write keys with values, {example} to begin with")
            )
            return None
        tree = self._substitution.fill(tree)
        while self._substitution.problems:
            self._add(self._substitution.problems.pop())
        return tree

    def _validate(self, section: type[_S], tree: Node) -> _S | None:
        try:
            return section.model_validate(tree.plain())
        except ValidationError as error:
            # The members of a union report one error each, at one node.
            by_node: dict[tuple[object, ...], list[tuple[Problem, str]]] = {}
            for details in error.errors(include_url=False):
                problem = _problem(section, tree, details)
                by_node.setdefault((problem.file, problem.line, problem.column, problem.path), []).append((problem, problem.message))
            for found in by_node.values():
                problem = found[0][0]
                self._add(Problem(problem.file, words.either([m for _, m in found]), problem.line, problem.column, problem.path))
            return None

    def _check_model(self, camera: Node, models: list[str]) -> None:
        if not models:
            return  # reported already, in the main file
        chosen = _entries(camera).get("model")
        if chosen is None or chosen.value is None:
            if len(models) > 1:
                message = f"must be given, since there are several models: {words.list_of(models)}"
                self._add(problem_at(camera.place, message, path="model"))
        elif chosen.value not in models:
            self._add(chosen.problem(f"no such model; `models` has {words.list_of(models)}"))

    def _check_gpu(self, camera: Node, *, on_cpu: bool) -> None:
        """Which GPUs there are only the driver knows; that none is to be used the configuration says."""
        chosen = _entries(camera).get("gpu")
        if on_cpu and chosen is not None and chosen.value is not None:
            self._add(chosen.problem("no GPU is used, since `engine.device` is cpu"))

    def _absolute_url(self, camera: CameraConfig, tree: Node, file: Path) -> CameraConfig:
        """A file's address becomes an absolute path, so that nothing later depends on the current folder."""
        if not camera.is_file:
            return camera
        path = unquote(urlsplit(camera.url).path) if "://" in camera.url else camera.url
        return camera.model_copy(update={"url": str(self._absolute(path, file, _entries(tree)["url"]))})

    def _absolute_models(self, sections: MainFile, entries: Mapping[str, Node]) -> dict[str, ModelConfig]:
        models = {}
        for name, model in sections.models.items():
            keys = _entries(_entries(entries["models"])[name])
            paths = {key: getattr(model, key) for key in ("weights_file", "labels_file")}
            update = {key: self._absolute(path, self._main, keys[key]) for key, path in paths.items() if path is not None}
            models[name] = model.model_copy(update=update)
        return models

    def _absolute(self, path: str | Path, file: Path, node: Node) -> Path:
        absolute = Path(os.path.normpath(file.parent.absolute() / path))
        if self._require_files:
            try:
                wrong = "is a folder, not a file" if stat.S_ISDIR(absolute.stat().st_mode) else None
            except FileNotFoundError:
                wrong = "does not exist"
            except OSError as error:
                wrong = f"cannot be read: {error.strerror}"
            if wrong:
                self._add(node.problem(f"{self._without_secrets(absolute)} {wrong}"))
        return absolute

    def _without_secrets(self, path: Path) -> str:
        shown = str(path)
        for secret in self._substitution.secrets:
            shown = shown.replace(secret, "***")
        return printable(shown)

    def _problems_in(self, folder: Path) -> bool:
        return any(problem.file == printable(str(folder)) for problem in self._problems.values())

    def _add(self, problem: Problem) -> None:
        """The first problem of a key wins: what follows from it says nothing new."""
        self._problems.setdefault((problem.file, problem.line, problem.column, problem.path or problem.message), problem)


def merged(below: Node | None, above: Node) -> Node:
    """`above` with the keys that only `below` has, at every depth."""
    if below is None or not isinstance(below.value, dict) or not isinstance(above.value, dict):
        return above
    value = {**below.value, **{key: merged(below.value.get(key), node) for key, node in above.value.items()}}
    return Node(value, above.place, above.key, above.path)


def _entries(node: Node | None) -> dict[str, Node]:
    return node.value if node is not None and isinstance(node.value, dict) else {}


def _problem(section: type[Section], tree: Node, error: Any) -> Problem:
    """A pydantic error at its place: an unknown key's at the key, a missing one's at the group it belongs to, others at the value."""
    loc, node = list(error["loc"]), tree
    while loc and str(loc[0]) in _entries(node):
        node = _entries(node)[str(loc.pop(0))]
    kind = error["type"]
    known = words.keys_at(section, error["loc"][:-1]) if kind == "extra_forbidden" else ()
    message = words.sentence(error, known_keys=known)
    if kind == "missing":
        return problem_at(node.place, message, path=f"{node.path}.{loc[0]}".lstrip("."))
    if kind == "extra_forbidden" or loc[-1:] == ["[key]"]:
        return problem_at(node.key, message, path=node.path)
    if kind == "value_error" and isinstance(node.value, dict):
        # A rule about several keys: point at the first of them that stands in this group, in this file.
        for name in re.findall(r"`(\w+)`", message):
            named = node.value.get(name)
            if named is not None and named.place.file == node.place.file:
                return problem_at(named.place, message, path=node.path)
    return problem_at(node.place, message, path=node.path)


def _unreadable(path: Path, error: Exception) -> Problem:
    reason = error.strerror if isinstance(error, OSError) else None
    return Problem(printable(str(path)), "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {reason or error}")
