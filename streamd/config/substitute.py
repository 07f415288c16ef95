"""`${VAR}`, `${VAR:-default}` and `${file:NAME}` in the scalars of a parsed tree. What is filled in is text and never read as YAML.

`$${` stands for a literal `${`. Every problem names the place of the scalar, and none repeats a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from streamd.config.yaml import Node, printable, unusable
from streamd.errors import Problem

_TOKEN = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_FILE = re.compile(r"file:(.*)", re.DOTALL)
_FILE_NAME = re.compile(r"[A-Za-z0-9_@-][A-Za-z0-9_.@-]*")


class Substitution:
    """Fills in trees, and remembers what went wrong and which texts came from files.

    `folders` are searched in order for `${file:NAME}`.
    """

    def __init__(self, *, env: Mapping[str, str], folders: Sequence[Path]) -> None:
        self.problems: list[Problem] = []
        self.secrets: set[str] = set()
        self._env = env
        self._folders = folders

    def fill(self, node: Node) -> Node:
        """`node` with its scalars filled in. A scalar with a problem stays as it is written."""
        value = node.value
        if isinstance(value, dict):
            return Node({name: self.fill(item) for name, item in value.items()}, node.place, node.key, node.path)
        if isinstance(value, list):
            return Node([self.fill(item) for item in value], node.place, node.key, node.path)
        if not isinstance(value, str) or "${" not in value:
            return node
        try:
            text = _TOKEN.sub(self._replace, value)
            if unusable(text):
                raise _Unfilled("what is filled in here is not UTF-8 text, or holds a NUL")
        except _Unfilled as error:
            self.problems.append(node.problem(str(error)))
            return node
        # `${VAR:-}` is how people write "none unless set", and an empty YAML value is null too.
        nothing = not text and _TOKEN.fullmatch(value) is not None
        return Node(None if nothing else text, node.place, node.key, node.path)

    def _replace(self, token: re.Match[str]) -> str:
        if token[0] == "$${":
            return "${"
        inside, closed = token[1], token[2]
        if not closed:
            raise _Unfilled("`${` without `}`; write `$${` for a literal `${`")
        if (file := _FILE.fullmatch(inside)) is not None:
            return self._from_file(file[1])
        variable = _VARIABLE.fullmatch(inside)
        if variable is None:
            raise _Unfilled("cannot be filled in; write ${NAME}, ${NAME:-default} or ${file:NAME}, or `$${` for a literal `${`")
        name, default = variable[1], variable[2]
        text = self._env.get(name)
        if default is not None:
            return text or default
        if text is None:
            raise _Unfilled(f"environment variable {name} is not set; set it, or write ${{{name}:-default}}")
        return text

    def _from_file(self, name: str) -> str:
        if not _FILE_NAME.fullmatch(name):
            raise _Unfilled("${file:NAME} takes the name of a file without folders: letters, digits, `_`, `.`, `-`, `@`")
        for folder in self._folders:
            path = folder / name
            try:
                text = path.read_bytes().decode()
            except FileNotFoundError:
                continue
            except UnicodeDecodeError:
                raise _Unfilled(f"{printable(str(path))} is not UTF-8 text") from None
            except OSError as error:
                raise _Unfilled(f"{printable(str(path))} cannot be read: {error.strerror}") from None
            text = text.removesuffix("\n").removesuffix("\r")
            if text:
                self.secrets.add(text)
            return text
        places = " or ".join(printable(str(folder)) for folder in self._folders)
        raise _Unfilled(f"there is no file {name} in {places}; put the secret there, or set $CREDENTIALS_DIRECTORY to its folder")


class _Unfilled(Exception):
    """A token cannot be replaced; the message says what to do."""
