"""YAML text to a tree of values that know their line and column. Refuses what configurations do without and people trip over.

Only the composer of ruamel.yaml is used, the stage that knows positions; scalars are read here, by the rules of YAML 1.2 (`on` is a text).
No message repeats a value of the file, since any value may be a password.
"""

from __future__ import annotations

from dataclasses import dataclass

import ruamel.yaml
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from streamd.errors import Problem

_MAX_DEPTH = 32
_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {_TAG + "str", _TAG + "timestamp", _TAG + "merge", _TAG + "value"}
_TRUE_AND_FALSE = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}

_SYNTAX = (
    # what ruamel.yaml's own words contain, whether it means the start of the construct, and what to do
    (r"'\t' that cannot start", False, "a tab; YAML is indented with spaces"),
    ("cannot start any token", False, "a value cannot begin with this character; put the value in quotes"),
    ("mapping values are not allowed", False, "no place for a `:`; check the indentation, or put a value that holds `: ` in quotes"),
    ("undefined alias", False, "`*` makes this an alias of an anchor; put the value in quotes"),
    ("unknown escape character", False, r"no such escape; write \\ for a backslash, or use single quotes"),
    ("unexpected end of stream", True, "this quote is never closed"),
    ("unexpected document separator", True, "this quote is never closed"),
    ("could not find expected ':'", True, "a `:` and a space are missing after the key"),
    ("expected <block end>", False, "not in line with the keys above; check the indentation and the quotes"),
    ("expected ',' or", True, "this bracket is never closed, or a `,` is missing in it"),
    ("expected the node content", False, "a value or a closing bracket is missing here"),
    ("another document", False, "a second document begins here; a file holds one"),
)
_UNREADABLE = "not readable as YAML from here; check indentation, quotes and brackets"

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands; line and column count from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Node:
    """A value, where it stands, and the path of keys that leads to it in its file."""

    value: Scalar | dict[str, Node] | list[Node]
    place: Place
    key: Place
    """Of the key in front of it; of the value itself where there is none."""
    path: str = ""

    def problem(self, message: str) -> Problem:
        return problem_at(self.place, message, path=self.path)

    def plain(self) -> object:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def problem_at(place: Place, message: str, *, path: str = "") -> Problem:
    return Problem(place.file, message, place.line, place.column, path)


def printable(text: str) -> str:
    """`text` on one line and encodable, whatever a key or a file's name holds; at most 200 characters."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= 200 else f"{shown[:200]}..."


def unusable(text: str) -> bool:
    """Whether `text` holds NUL, which no path, password or key may, or half a surrogate pair, which cannot be encoded."""
    return any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text)


def parse(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """The tree of the one document in `text`, None where it cannot be read; and what is wrong with it. An empty text is null."""
    reader = ruamel.yaml.YAML(typ="safe", pure=True)
    reader.composer.warn_double_anchors = False  # the warning would quote the file; anchors are refused below
    try:
        root = reader.compose(text)
    except MarkedYAMLError as error:
        return None, [_syntax_problem(error, file)]
    except ReaderError as error:
        before = text[: error.position]
        line = before.count("\n") + 1
        return None, [Problem(file, "a control character; remove it", line, len(before) - before.rfind("\n"))]
    except RecursionError:
        return None, [Problem(file, "nested too deeply", 1, 1)]
    except Exception:  # noqa: BLE001 - ruamel.yaml 0.19 lets others through: OverflowError for "\UFFFFFFFF", ValueError for "%YAML 1.x"
        return None, [Problem(file, _UNREADABLE, 1, 1)]
    if root is None:
        return Node(None, Place(file, 1, 1), Place(file, 1, 1)), []
    builder = _Builder(file)
    return builder.build(root), builder.problems


def _syntax_problem(error: MarkedYAMLError, file: str) -> Problem:
    words = f"{error.context or ''} {error.problem or ''}"
    mark, message = error.problem_mark or error.context_mark, _UNREADABLE
    for fragment, at_start, sentence in _SYNTAX:
        if fragment in words:
            mark, message = (error.context_mark or mark) if at_start else mark, sentence
            break
    return Problem(file, message, mark.line + 1, mark.column + 1) if mark else Problem(file, message, 1, 1)


class _Builder:
    """Walks ruamel's nodes and collects what is wrong on the way."""

    def __init__(self, file: str) -> None:
        self.problems: list[Problem] = []
        self._file = file

    def build(self, node: ruamel.yaml.Node, *, key: Place | None = None, path: tuple[str, ...] = ()) -> Node:
        place = self._place(node)
        if key is not None and isinstance(node, ScalarNode) and not node.value and not node.style:
            place = key  # an absent value has no place of its own: ruamel names the next line
        if node.anchor is not None:
            self._add(
                place, path, "`&` makes this an anchor, and anchors are not supported; use camera_defaults, or put the value in quotes"
            )
        if len(path) > _MAX_DEPTH:
            self._add(place, path[:1], "nested too deeply")
            return Node(None, place, key or place, path[0])
        return Node(self._value(node, place, path), place, key or place, ".".join(path))

    def _value(self, node: ruamel.yaml.Node, place: Place, path: tuple[str, ...]) -> Scalar | dict[str, Node] | list[Node]:
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.build(item, path=(*path, str(i))) for i, item in enumerate(node.value)]
        tag = str(node.tag)
        if not tag.startswith(_TAG):
            self._add(place, path, "`!` makes this a tag, and tags are not supported; put the value in quotes")
        value = _scalar(node.value, tag)
        if isinstance(value, str) and unusable(value):
            self._add(place, path, "holds a NUL or half a surrogate pair, which no text may")
            return ""
        return value

    def _mapping(self, node: MappingNode, path: tuple[str, ...]) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key, value in node.value:
            place = self._place(key)
            if not isinstance(key, ScalarNode) or unusable(key.value):
                self._add(place, path, "a key must be a plain word")
                continue
            name: str = key.value
            below = (*path, printable(name))
            if name in entries:
                self._add(place, below, f"duplicate key; the first is in line {entries[name].key.line}")
                continue
            entries[name] = self.build(value, key=place, path=below)
        return entries

    def _place(self, node: ruamel.yaml.Node) -> Place:
        return Place(self._file, node.start_mark.line + 1, node.start_mark.column + 1)

    def _add(self, place: Place, path: tuple[str, ...], message: str) -> None:
        self.problems.append(problem_at(place, message, path=".".join(path)))


def _scalar(text: str, tag: str) -> Scalar:
    """`text` by its resolved tag; what does not read as its tag says stays a text."""
    if tag in _TEXT_TAGS:
        return text
    if tag == _TAG + "null":
        return None
    if tag == _TAG + "bool":
        return _TRUE_AND_FALSE.get(text, text)
    if tag == _TAG + "int":
        for base in (10, 0):  # 010 is ten in YAML 1.2; base 0 reads 0x1f and 0o17
            try:
                return int(text, base)
            except ValueError:
                continue
    if tag == _TAG + "float":
        try:
            return float(text.replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            pass
    return text
